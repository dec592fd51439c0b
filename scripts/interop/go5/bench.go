package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-clients/golang/v5"
)

const bodyBytes = 100 // of each message; Java's driver has the same

// benchSend says how fast --count sends went, with --in-flight of them at a time, each waiting for its answer.
func benchSend() error {
	producer, err := newProducer()
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	body := []byte(strings.Repeat("x", bodyBytes))
	send := func(lane int) (int, error) {
		message := &golang.Message{Topic: *topic, Body: body}
		if *fifo == "true" {
			message.SetMessageGroup(fmt.Sprintf("group-%d", lane))
		}
		_, err := producer.Send(context.Background(), message)
		return 1, err
	}
	return measure(send)
}

// benchReceive says how fast --count messages were received and acknowledged, by --in-flight receivers.
func benchReceive() error {
	consumer, err := newSimpleConsumer()
	if err != nil {
		return err
	}
	defer consumer.GracefulStop()
	take := func(int) (int, error) {
		found, err := receive(consumer)
		if err != nil {
			return 0, err
		}
		for _, message := range found {
			if err := consumer.Ack(context.Background(), message); err != nil {
				return 0, err
			}
		}
		return len(found), nil
	}
	return measure(take)
}

// measure has --in-flight lanes do a step until it was done --warm-up times, then --count times, which is measured.
// A step says how many messages it was. The event `warm` comes between the two.
func measure(step func(lane int) (int, error)) error {
	if err := until(*warmUp, step); err != nil {
		return err
	}
	emit("warm", event{})
	start := time.Now()
	if err := until(*count, step); err != nil {
		return err
	}
	emit("measured", event{"seconds": time.Since(start).Seconds()})
	return nil
}

// until returns when the count is reached: a receiver that waits for more is not waited for.
func until(count int, step func(lane int) (int, error)) error {
	var done atomic.Int64
	ended := make(chan error, *inFlight)
	for lane := 0; lane < *inFlight; lane++ {
		go func() {
			for done.Load() < int64(count) {
				more, err := step(lane)
				if err != nil {
					ended <- err
					return
				}
				done.Add(int64(more))
			}
			ended <- nil
		}()
	}
	return <-ended
}
