// Drivers of rocketmq-client-go: `produce` and `consume`, with --name-server, --topic, --group and what is named below.
// They say what they do as JSON lines, and end when stdin ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const sendTimeout = 30 * time.Second

var (
	flags      = flag.NewFlagSet("driver", flag.ExitOnError)
	nameServer = flags.String("name-server", "", "host:port")
	topic      = flags.String("topic", "", "")
	group      = flags.String("group", "", "")
	messages   = flags.Int("messages", 10, "produce: how many")
	keys       = flags.Int("keys", 1, "produce: sharding keys in turn")
	bodyBytes  = flags.Int("body-bytes", 0, "produce: each body is filled up with text that compresses")
	ordered    = flags.String("ordered", "true", "consume: one message of a queue after the other")
	accessKey  = flags.String("access-key", "", "of an account, with --secret-key")
	secretKey  = flags.String("secret-key", "", "")
	logLevel   = flags.String("log-level", "error", "what the client tells on stderr: warn or error")
)

func main() {
	parts := map[string]func() error{"produce": produce, "consume": consume}
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: driver produce|consume --name-server HOST:PORT --topic T --group G ...")
		os.Exit(2)
	}
	flags.Parse(os.Args[2:])
	rlog.SetLogLevel(*logLevel)
	if err := parts[os.Args[1]](); err != nil {
		emit("failed", event{"error": err.Error()})
		os.Exit(1)
	}
	emit("closed", event{})
}

// account is empty without --access-key: then the client signs nothing.
func account() primitive.Credentials {
	return primitive.Credentials{AccessKey: *accessKey, SecretKey: *secretKey}
}

// produce sends numbers as bodies; the queue is chosen by the hash of the sharding key.
func produce() error {
	sender, err := rocketmq.NewProducer(producer.WithNameServer(primitive.NamesrvAddr{*nameServer}),
		producer.WithGroupName(*group), producer.WithSendMsgTimeout(sendTimeout), producer.WithCredentials(account()),
		producer.WithQueueSelector(producer.NewHashQueueSelector()))
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return err
	}
	defer sender.Shutdown()
	for seq := 0; seq < *messages; seq++ {
		body := strconv.Itoa(seq)
		if missing := *bodyBytes - len(body); missing > 0 {
			body += strings.Repeat(" in order", missing/len(" in order")+1)
		}
		message := primitive.NewMessage(*topic, []byte(body)).WithShardingKey(fmt.Sprintf("key-%d", seq%*keys))
		message.WithProperty("seq", strconv.Itoa(seq))
		result, err := sender.SendSync(context.Background(), message)
		if err != nil {
			return err
		}
		fields := content(message)
		fields["status"], fields["msgId"], fields["queueId"] = int(result.Status), result.MsgID, result.MessageQueue.QueueId
		fields["queueOffset"] = result.QueueOffset
		emit("sent", fields)
	}
	return nil
}

// consume says what it handles, until stdin ends.
func consume() error {
	receiver, err := rocketmq.NewPushConsumer(consumer.WithNameServer(primitive.NamesrvAddr{*nameServer}),
		consumer.WithGroupName(*group), consumer.WithConsumerOrder(*ordered == "true"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithCredentials(account()))
	if err != nil {
		return err
	}
	handle := func(_ context.Context, found ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range found {
			fields := content(&message.Message)
			fields["begin_ns"] = time.Since(began).Nanoseconds()
			fields["queueId"], fields["queueOffset"] = message.Queue.QueueId, message.QueueOffset
			fields["msgId"], fields["reconsumeTimes"] = message.MsgId, message.ReconsumeTimes
			emit("handled", fields)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := receiver.Subscribe(*topic, consumer.MessageSelector{}, handle); err != nil {
		return err
	}
	if err := receiver.Start(); err != nil {
		return err
	}
	emit("ready", event{})
	io.Copy(io.Discard, os.Stdin)
	return receiver.Shutdown()
}
