"""The ledger: evidence about nodes, recorded in the JobReports."""
