"""What is said: the status of Job and JobReport, and their sentences."""
