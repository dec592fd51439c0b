"""HTTP/2 below the calls of gRPC: bytes, windows and floods. It knows no call of RocketMQ."""
