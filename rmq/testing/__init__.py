"""Tests of your own against a real nameserver and broker in the test process (docs/sdk.md).

``rmq.testing.plugin`` has pytest fixtures, ``rmq.testing.cluster`` the cluster itself: ``BlockingCluster`` for blocking
code, ``Cluster`` for coroutines. The ``sim`` modules simulate time, threads, network and disk.
"""
