"""What clients and brokers ask the name server in RocketMQ 4's protocol."""
