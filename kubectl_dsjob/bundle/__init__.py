"""`kubectl dsjob bundle`: makes a task image of a folder of scripts, and the Job that runs it.

What the folder holds is input from outside: names, links and sizes are bounded and checked before
anything is built. The scripts are never run here.
"""
