"""The lesson component, and questions that a teacher writes."""
