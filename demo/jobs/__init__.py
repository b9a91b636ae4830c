"""`glidemq demo`: measure every Python file of a tree as a job, kill a worker half way, and count what was lost.

command.py is the command, measure.py the job, worker_process.py what a worker process runs, crew.py starts and kills
those, show.py leads the whole, tally.py counts live, audit.py from the stored data, display.py and report.py draw.
"""
