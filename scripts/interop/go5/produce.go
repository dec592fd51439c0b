package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/apache/rocketmq-clients/golang/v5"
)

const sendTimeout = 30 * time.Second

// produce sends numbers as bodies, one after the other. In transactions each is committed (its number modulo 3 is 0),
// rolled back (1), or left to the broker's question, which is answered with a commit until stdin ends (2).
func produce() error {
	producer, err := newProducer()
	if err != nil {
		return err
	}
	defer producer.GracefulStop()
	for seq := *first; seq < *first+*messages; seq++ {
		if err := sendOne(producer, seq); err != nil {
			return err
		}
	}
	if *transactions == "true" {
		emit("ready", event{})
		untilStdinEnds()
	} else {
		emit("done", event{})
	}
	return nil
}

func newProducer() (golang.Producer, error) {
	options := []golang.ProducerOption{golang.WithTopics(*topic)}
	if *transactions == "true" {
		options = append(options, golang.WithTransactionChecker(&golang.TransactionChecker{Check: answer}))
	}
	producer, err := golang.NewProducer(configuration(), options...)
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

func answer(message *golang.MessageView) golang.TransactionResolution {
	emit("asked", event{"seq": numberOf(message)})
	return golang.COMMIT
}

func sendOne(producer golang.Producer, seq int) error {
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	message, key := messageOf(seq)
	var transaction golang.Transaction
	var receipts []*golang.SendReceipt
	var err error
	if *transactions == "true" {
		transaction = producer.BeginTransaction()
		receipts, err = producer.SendWithTransaction(ctx, message, transaction)
	} else {
		receipts, err = producer.Send(ctx, message)
	}
	if err != nil {
		return err
	}
	emit("sent", event{"topic": *topic, "seq": seq, "key": key, "msgId": receipts[0].MessageID})
	if transaction != nil {
		return decide(transaction, seq)
	}
	if seq == *first && *recall == "true" {
		id, err := producer.Recall(ctx, *topic, receipts[0].RecallHandle)
		if err != nil {
			return err
		}
		emit("recalled", event{"seq": seq, "msgId": id})
	}
	return nil
}

func decide(transaction golang.Transaction, seq int) error {
	switch seq % 3 {
	case 0:
		return transaction.Commit()
	case 1:
		return transaction.RollBack()
	}
	return nil
}

func messageOf(seq int) (*golang.Message, any) {
	text := strconv.Itoa(seq)
	message := &golang.Message{Topic: *topic, Body: []byte(text)}
	message.AddProperty("seq", text)
	if *delayMs > 0 {
		message.SetDelayTimestamp(time.Now().Add(time.Duration(*delayMs) * time.Millisecond))
	}
	if *keys == 0 {
		return message, nil
	}
	key := fmt.Sprintf("key-%d", seq%*keys)
	message.SetMessageGroup(key)
	return message, key
}
