package main

import (
	"encoding/json"
	"hash/crc32"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const bodyShownMax = 64

type event map[string]any

var (
	printing sync.Mutex
	began    = time.Now()
)

// emit writes an event as one JSON line; it is in the file before this returns.
func emit(name string, fields event) {
	fields["event"] = name
	fields["wall_ms"] = time.Now().UnixMilli()
	fields["t_ns"] = time.Since(began).Nanoseconds()
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// content is what producers and consumers say of a message alike. `key` is the sharding key as this client reads it.
func content(message *primitive.Message) event {
	fields := event{
		"topic":      message.Topic,
		"key":        message.GetShardingKey(),
		"keys":       message.GetKeys(),
		"properties": message.GetProperties(),
		"tags":       message.GetTags(),
		"seq":        nil,
		"bodyBytes":  len(message.Body),
		"bodyCrc32":  crc32.ChecksumIEEE(message.Body),
	}
	var seq int
	if json.Unmarshal([]byte(message.GetProperty("seq")), &seq) == nil {
		fields["seq"] = seq
	}
	if len(message.Body) <= bodyShownMax {
		fields["body"] = string(message.Body)
	}
	return fields
}
