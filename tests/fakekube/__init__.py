"""One model of Kubernetes' own controllers for all rings of tests: pure steps over raw objects."""
