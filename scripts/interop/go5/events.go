package main

import (
	"encoding/json"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-clients/golang/v5"
)

type event map[string]any

var printing sync.Mutex

// emit writes an event as one JSON line; it is in the file before this returns.
func emit(name string, fields event) {
	fields["event"] = name
	fields["wall_ms"] = time.Now().UnixMilli()
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// numberOf is what the producer put into the property `seq`.
func numberOf(message *golang.MessageView) int {
	seq, err := strconv.Atoi(message.GetProperties()["seq"])
	if err != nil {
		panic(err)
	}
	return seq
}

// handled says that a message was handled, before it is acknowledged.
func handled(message *golang.MessageView, status string) {
	emit("handled", event{
		"topic":   message.GetTopic(),
		"msgId":   message.GetMessageId(),
		"key":     message.GetMessageGroup(),
		"tags":    message.GetTag(),
		"seq":     numberOf(message),
		"body":    string(message.GetBody()),
		"attempt": message.GetDeliveryAttempt(),
		"status":  status,
	})
}
