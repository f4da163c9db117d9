"""Groups of Java's and of our members that come, leave and are killed while messages come, and queues are added.

All that was acknowledged is consumed, a queue has one member but while a change goes round, and what is committed was
consumed. What comes again was not committed, and with members of ours no more of it does than with Java's.

``make torture`` runs more of them, and the same with members of one kind, whose duplicates are to be compared.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.interop import Clusters
from tests.support.kills.campaign import LONG, PIECE, amount
from tests.support.kills.groups import judge_group
from tests.support.kills.members import Churn
from tests.support.peers import Cluster, ToolMissing, skip_or_fail

#: Seconds that two members may have one queue: intervals are a second here, and a machine under load takes its time.
OVERLAP = 5.0
#: What the members of one kind may be given again beyond the other's for each that was killed: what one is done with
#: it tells its broker of with the next pull, and on a machine under load it has a second's messages in hand.
LUCK = 40
KINDS = {"mixed": ("java", "python"), "java": ("java",), "python": ("python", "python-blocking")}


@pytest.fixture
def cluster(clusters: Clusters) -> Cluster:
    return clusters.get(Clusters.tested())


def _change(churn: Churn, kinds: tuple[str, ...]) -> None:
    """Somebody comes, leaves or is killed, or the topic grows; somebody is always there."""
    dice = churn.random.random()
    members = churn.members
    if len(members) < 2 or (dice < 0.35 and len(members) < 4):
        churn.join(kinds[churn.joined % len(kinds)])
    elif dice < 0.6:
        churn.leave(churn.random.randrange(len(members)))
    elif dice < 0.9:
        churn.kill(churn.random.randrange(len(members)))
    elif churn.queues < 10:
        churn.grow(2)


@pytest.mark.timeout(0 if LONG else 300)
@pytest.mark.parametrize("kind", list(KINDS) if LONG else ["mixed"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_a_group_under_churn(cluster: Cluster, kind: str, orderly: bool, say: Callable[[str], None]) -> None:
    kinds = KINDS[kind]
    try:
        churn = Churn(cluster, 1000 * PIECE + orderly, orderly=orderly)
    except ToolMissing as missing:
        skip_or_fail(missing)
    try:
        churn.start()
        for number in range(2):
            churn.join(kinds[number % len(kinds)])
        churn.rest(2)
        # Whoever is killed while he consumes in order keeps his queues for a minute, as with Java.
        (churn.leave if orderly and not LONG else churn.kill)(0)
        churn.grow(2)
        churn.rest(1)
        churn.join(kinds[0])
        churn.rest(2)
        churn.leave(0)
        churn.rest(1)
        for _ in range(amount(0, 40)):
            _change(churn, kinds)
            churn.rest(1 + 4 * churn.random.random())
        lines = churn.finish()
    finally:
        churn.close()
    sent = {key: (queue, offset) for key, (queue, offset, _) in churn.sent.items()}
    verdict = judge_group(lines, sent, churn.looks, topic=churn.topic, overlap=OVERLAP, orderly=orderly)
    say(
        f"{kind}, {'orderly' if orderly else 'concurrently'}: {churn.joined} joined, {churn.left} left, "
        f"{churn.killed} killed, {churn.queues} queues, {len(churn.looks)} looks: {dict(verdict.counts)}"
    )
    verdict.demand()
    assert len(sent) > 100
    assert churn.looks[-1].last


@pytest.mark.timeout(0 if LONG else 300)
def test_no_more_comes_again_than_with_java(cluster: Cluster, say: Callable[[str], None]) -> None:
    """Members of ours and of Java's in groups of their own come, leave and are killed at the same moments."""
    try:
        ours, javas = (Churn(cluster, 7000 + 1000 * PIECE) for _ in range(2))
    except ToolMissing as missing:
        skip_or_fail(missing)
    both = ((ours, "python"), (javas, "java"))

    def rest(seconds: float) -> None:
        ours.rest(seconds)
        javas.look()

    try:
        for churn, kind in both:
            churn.start()
            churn.join(kind)
            churn.join(kind)
        rest(2)
        for number in range(amount(1, 12)):
            for churn, kind in both:
                churn.kill(0)
                churn.join(kind)
            rest(1.5)
            for churn, kind in both:
                (churn.leave if number % 2 else churn.kill)(0)
                churn.join(kind)
            rest(1.5)
        lines = {kind: churn.finish() for churn, kind in both}
    finally:
        ours.close()
        javas.close()
    again = {}
    for churn, kind in both:
        sent = {key: (queue, offset) for key, (queue, offset, _) in churn.sent.items()}
        verdict = judge_group(lines[kind], sent, churn.looks, topic=churn.topic, overlap=OVERLAP)
        say(f"{kind}: {churn.joined} joined, {churn.left} left, {churn.killed} killed: {dict(verdict.counts)}")
        verdict.demand()
        again[kind] = verdict.counts["given again"]
    assert again["python"] <= again["java"] + LUCK * ours.killed
