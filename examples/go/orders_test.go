// A test of a Go service with lockstep-broker: go test ./... (lockstep-broker must be on the PATH).
package orders

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// startBroker runs lockstep-broker on free ports until the test ends; it returns its addresses by name.
func startBroker(t *testing.T) map[string]string {
	command := exec.Command("lockstep-broker", "--port", "0", "--name-server-port", "0",
		"--control-port", "0", "--end-with-stdin", "--log-level", "warning", "--topic", "orders:4")
	stdin, _ := command.StdinPipe()
	stdout, _ := command.StdoutPipe()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); command.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal("the broker did not start")
	}
	addresses := map[string]string{}
	for _, word := range strings.Fields(line)[1:] {
		name, address, _ := strings.Cut(word, "=")
		addresses[name] = address
	}
	return addresses
}

// control makes one call of the control port, for example {"call": "advance", "seconds": 61}.
func control(t *testing.T, address string, call map[string]any) any {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	json.NewEncoder(connection).Encode(call)
	var answer struct {
		Ok     bool
		Result any
		Error  string
	}
	if err := json.NewDecoder(connection).Decode(&answer); err != nil || !answer.Ok {
		t.Fatal(err, answer.Error)
	}
	return answer.Result
}

func TestStepsOfAnOrderComeInOrder(t *testing.T) {
	broker := startBroker(t)
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
