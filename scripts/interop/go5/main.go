// Drivers of RocketMQ 5's Go client: `produce`, `simple`, `push`, with what each takes named below; and for
// measurements `bench-send` and `bench-receive`. They say what they do as JSON lines, and end when stdin ends.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var (
	flags        = flag.NewFlagSet("driver", flag.ExitOnError)
	endpoints    = flags.String("endpoints", "", "host:port")
	plain        = flags.String("plain", "false", "plain text instead of TLS, which is the client's default")
	topic        = flags.String("topic", "", "")
	group        = flags.String("group", "", "of consumers")
	accessKey    = flags.String("access-key", "", "of an account, with --secret-key")
	secretKey    = flags.String("secret-key", "", "")
	messages     = flags.Int("messages", 1, "produce: how many")
	keys         = flags.Int("keys", 0, "produce: message groups in turn; 0: none")
	first        = flags.Int("first", 0, "produce: the first one's number")
	delayMs      = flags.Int("delay-ms", 0, "produce: until they are delivered")
	recall       = flags.String("recall", "false", "produce: take the first one back")
	transactions = flags.String("transactions", "false", "produce: commit, roll back, or wait for the question, in turn")
	invisibleS   = flags.Int("invisible-s", 15, "simple, bench-receive: until others get what is not acknowledged")
	batch        = flags.Int("batch", 4, "simple, bench-receive: messages of a receive")
	hangAt       = flags.Int("hang-at", -1, "consumers: the number of the message with which they never end")
	fail         = flags.Int("fail", -1, "push: the number of the message that is never consumed")
	count        = flags.Int("count", 1000, "bench: messages")
	warmUp       = flags.Int("warm-up", 0, "bench: messages before those, not measured")
	inFlight     = flags.Int("in-flight", 1, "bench: sends, or receives, at a time")
	fifo         = flags.String("fifo", "false", "bench-send: each of the sends in flight has a message group of its own")
)

func main() {
	parts := map[string]func() error{
		"produce": produce, "simple": simple, "push": push, "bench-send": benchSend, "bench-receive": benchReceive,
	}
	if len(os.Args) < 2 || parts[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: driver produce|simple|push|bench-send|bench-receive --endpoints HOST:PORT --topic T ...")
		os.Exit(2)
	}
	flags.Parse(os.Args[2:])
	if *plain == "true" {
		golang.EnableSsl = false
	}
	if err := parts[os.Args[1]](); err != nil {
		emit("failed", event{"error": err.Error()})
		os.Exit(1)
	}
	emit("closed", event{})
}

// configuration has keys that are empty without --access-key: the client wants some.
func configuration() *golang.Config {
	return &golang.Config{
		Endpoint:      *endpoints,
		ConsumerGroup: *group,
		Credentials:   &credentials.SessionCredentials{AccessKey: *accessKey, AccessSecret: *secretKey},
	}
}

func untilStdinEnds() {
	io.Copy(io.Discard, os.Stdin)
}
