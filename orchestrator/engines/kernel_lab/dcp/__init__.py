"""Decode context parallelism (DCP): the context of every request is spread over ranks, which gather it back chunk by
chunk. ``sharding`` says who keeps what, ``source`` fills the workspace, ``group`` makes the ranks.
"""
