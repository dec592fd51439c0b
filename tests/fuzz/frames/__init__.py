"""A seeded mutator of frames for broker and name server, in process, without sockets."""
