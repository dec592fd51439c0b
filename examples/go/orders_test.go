// A test of a Go service with lockstep-broker: go test ./... (lockstep-broker must be on the PATH).
package orders

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func TestStepsOfAnOrderComeInOrder(t *testing.T) {
	broker := startBroker(t, "--topic", "orders:4")
	nameServer := primitive.NamesrvAddr{broker["name-server"]}

	sender, err := rocketmq.NewProducer(producer.WithNameServer(nameServer), producer.WithGroupName("shop"),
		producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	defer sender.Shutdown()
	steps := []string{"created", "paid", "packed", "shipped"}
	for _, step := range steps {
		message := primitive.NewMessage("orders", []byte(step)).WithShardingKey("1001")
		if _, err := sender.SendSync(context.Background(), message); err != nil {
			t.Fatal(err)
		}
	}

	handled := make(chan string, 100)
	receiver, err := rocketmq.NewPushConsumer(consumer.WithNameServer(nameServer), consumer.WithGroupName("printer"),
		consumer.WithConsumerOrder(true), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		t.Fatal(err)
	}
	receiver.Subscribe("orders", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				handled <- string(message.Body)
			}
			return consumer.ConsumeSuccess, nil
		})
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	defer receiver.Shutdown()
	for _, step := range steps {
		select {
		case got := <-handled:
			if got != step {
				t.Fatalf("got %s, not %s", got, step)
			}
		case <-time.After(60 * time.Second):
			t.Fatalf("no %s", step)
		}
	}

	// A message that is to come in two hours (level 18) comes now.
	later := primitive.NewMessage("orders", []byte("reviewed")).WithShardingKey("1001").WithDelayTimeLevel(18)
	if _, err := sender.SendSync(context.Background(), later); err != nil {
		t.Fatal(err)
	}
	control(t, broker["control"], map[string]any{"call": "advance", "seconds": 7201, "heartbeats": true})
	select {
	case got := <-handled:
		if got != "reviewed" {
			t.Fatal(got)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the clock was moved, and nothing came")
	}
	locks := control(t, broker["control"], map[string]any{"call": "locks", "group": "printer"})
	fmt.Println(len(locks.([]any)), "queues were locked")
}
