"""The ledger: evidence of completed nodes, entered in the JobReports."""
