"""Times written as cron, in a time zone: pure, without a clock."""
