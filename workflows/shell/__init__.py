"""What of a run touches Temporal, apart from the loop.

`state` is what a run carries, `people` are its messages and queries, `outside` its activities, `failures`
turns a failed activity into what is known of it. None of it decides anything: the pure modules do.
"""
