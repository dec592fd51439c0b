"""gRPC of RocketMQ 5: the messages of apache.rocketmq.v2, and how gRPC puts them on HTTP/2. Needs the extra `grpc`."""
