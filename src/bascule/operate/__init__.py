"""Looking after services: status, logs, stop."""
