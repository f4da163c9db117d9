"""Raft over byte spans of an unchanged commit log: who leads a group of brokers, and how far its log is committed.

Pure: events and times in, effects out; no disk, no socket, no clock.

**Positions.** The log has no entries of Raft's and no header before its records. A position is a term and an offset
(:class:`~rmq.raft.position.Position`); which bytes are of which term a list beside the log says, one line a term
(:class:`~rmq.raft.position.TermPath`). One leader writes in a term, and it writes every offset once: two logs that both
have a position are the same up to it. The beginning of a term is an entry without bytes: it takes the place of the
empty entry that other implementations write, so that nothing but messages is ever in the log.

**How it is driven** (:class:`~rmq.raft.node.RaftNode`). The broker's driver owns one, and gives it whatever happens:
``step`` a message of another member, ``tick`` when :attr:`~rmq.raft.node.RaftNode.due`, ``appended`` after each commit
of the store and ``spread`` once for all of a turn of the loop (one span, never one for a message), ``stored`` when the
log is as durable up to the end of a record as is to be counted: after its fdatasync, or after the write where the
settings are content with memory.

Each returns effects (:mod:`rmq.raft.effects`). **They are carried out in the order in which they come, one after the
other, and one that changes files is on the disk before the next begins**, but for ``Write``, whose durability is told
by ``stored``. That order is the proof: a vote is on the disk before it is sent, a log is cut before the term
that follows is noted, a term is noted before its first byte is written. Events may come while effects of earlier
ones still wait.

- ``Save``: ``raft/vote``, replaced and synced. ``Begin``, ``Cut``, ``Reset``: ``raft/terms``, and ``Store.truncate``.
- ``Write``: ``Store.append_raw``. A span may end inside a record, which is then neither stored nor seen before its rest
  has come; what a start finds behind the last whole record is cut before the node is made.
- ``Send``: a frame of the HA stream's kind to that member. For ``Append`` the driver adds the bytes, read from the log
  when the effect's turn comes. Messages may be lost, doubled and late.
- ``Commit``: ``Durability.visible`` goes so far, and who waits for it is answered.
- ``Became``: the role changes; a leader opens the gate only now, and only while the node still takes messages.

**Who is counted.** Membership is fixed by settings (:class:`~rmq.raft.members.Members`). A log that comes from a
plain broker is of term 0: members begin as copies of it, one a prefix of the other. A member that has lost its disk
has lost what it had promised, too: a vote, or that it holds what was counted. It comes back under its id with a
number for the new disk (``returning``), follows, and neither votes nor is counted before the leader admits it
(:meth:`~rmq.raft.leading.Leading.admits` says when). Its driver hears nothing of a lost disk any more once it has
heard the newer one. So whatever number of disks is lost, nobody leads without what is committed; when a majority is,
nobody leads.

**Who leads for how long.** A leader asks with each heartbeat, by its own clock (``asked``), and who answers says what
was asked last: a majority that has not answered what was asked within an election makes it none. Answers that lay
about while it stood still are answers to what it asked before that.
"""
