"""The sections of a report's page: functions from findings to markup, or to None if there is nothing to show."""
