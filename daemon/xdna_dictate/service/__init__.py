"""The program on D-Bus: the interface, the object behind it, and the client."""
