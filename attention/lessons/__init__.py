"""What the page Learn teaches: lessons with one question each, and chapters on softmax, scaling and masks.

Begin with `lesson.Lesson`, and `markdown.read_many`, which reads a teacher's file. Answers are computed from the live trace by `answers`, and
never sent to a browser before the attempts are over (`grading`).
"""
