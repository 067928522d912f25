"""`python -m job_controller`."""

from job_controller.main import main

main()
