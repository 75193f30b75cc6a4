"""Pure numerics: functions of arrays and numbers, without graphs, ops or tasks."""
