"""Recognition in a process of its own: it can be killed, can crash, and gives its memory back when it is not needed."""
