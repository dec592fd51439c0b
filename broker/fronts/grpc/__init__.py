"""The front of RocketMQ 5's clients: apache.rocketmq.v2 over gRPC. Needs the extra `grpc`."""
