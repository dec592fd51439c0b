package main

import (
	"context"
	"math"
	"time"

	"github.com/apache/rocketmq-clients/golang/v5"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const await = 5 * time.Second

func newSimpleConsumer() (golang.SimpleConsumer, error) {
	consumer, err := golang.NewSimpleConsumer(configuration(), golang.WithSimpleAwaitDuration(await),
		golang.WithSimpleSubscriptionExpressions(map[string]*golang.FilterExpression{*topic: golang.SUB_ALL}))
	if err != nil {
		return nil, err
	}
	return consumer, consumer.Start()
}

// receive returns nothing where the client returns an error since there is nothing.
func receive(consumer golang.SimpleConsumer) ([]*golang.MessageView, error) {
	found, err := consumer.Receive(context.Background(), int32(*batch), time.Duration(*invisibleS)*time.Second)
	if status, ok := golang.AsErrRpcStatus(err); ok && status.GetCode() == int32(v2.Code_MESSAGE_NOT_FOUND) {
		return nil, nil
	}
	return found, err
}

func simple() error {
	consumer, err := newSimpleConsumer()
	if err != nil {
		return err
	}
	go func() {
		for {
			found, err := receive(consumer)
			if err != nil {
				emit("failed", event{"error": err.Error()})
				time.Sleep(time.Second)
			}
			for _, message := range found {
				work(message)
				handled(message, "SUCCESS")
				if err := consumer.Ack(context.Background(), message); err != nil {
					emit("failed", event{"error": err.Error()})
				} else {
					emit("acked", event{"msgId": message.GetMessageId()})
				}
			}
		}
	}()
	emit("ready", event{})
	untilStdinEnds()
	return consumer.GracefulStop()
}

func push() error {
	listener := &golang.FuncMessageListener{Consume: func(message *golang.MessageView) golang.ConsumerResult {
		work(message)
		if numberOf(message) == *fail {
			handled(message, "FAILURE")
			return golang.FAILURE
		}
		handled(message, "SUCCESS")
		return golang.SUCCESS
	}}
	consumer, err := golang.NewPushConsumer(configuration(), golang.WithPushMessageListener(listener),
		golang.WithPushSubscriptionExpressions(map[string]*golang.FilterExpression{*topic: golang.SUB_ALL}))
	if err != nil {
		return err
	}
	if err := consumer.Start(); err != nil {
		return err
	}
	emit("ready", event{})
	untilStdinEnds()
	return consumer.GracefulStop()
}

// work never ends with message number --hang-at, and says that it began.
func work(message *golang.MessageView) {
	if numberOf(message) == *hangAt {
		emit("hangs", event{"seq": *hangAt})
		time.Sleep(math.MaxInt64)
	}
}
