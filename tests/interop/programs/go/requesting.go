package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// responder is a consumer that answers, and the producer that it answers with.
type responder struct {
	consumer rocketmq.PushConsumer
	replies  rocketmq.Producer
}

var (
	responders = map[string]*responder{}
	requesters = map[string]rocketmq.Producer{}
	requesting sync.Mutex
)

func replying(namesrv, name string) (rocketmq.Producer, error) {
	client, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{namesrv}),
		producer.WithGroupName(name),
		producer.WithInstanceName(fmt.Sprintf("%s-%d", name, time.Now().UnixNano())),
		producer.WithSendMsgTimeout(60*time.Second),
	)
	if err != nil {
		return nil, err
	}
	return client, client.Start()
}

// respond answers every message of a topic with "re:" and its body; a body that begins with "silent" with nothing.
func respond(asked *request) (answer, error) {
	replies, err := replying(asked.Namesrv, "responding")
	if err != nil {
		return nil, err
	}
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(asked.Handle),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	err = client.Subscribe(asked.Topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"},
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				text := string(message.Body)
				if strings.HasPrefix(text, "silent") {
					continue
				}
				reply, err := consumer.CreateReplyMessage(message, nil)
				if err != nil {
					return consumer.ConsumeRetryLater, err
				}
				reply.Body = []byte("re:" + text) // the call above leaves it out
				if _, err = replies.SendSync(ctx, reply); err != nil {
					return consumer.ConsumeRetryLater, err
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	if err == nil {
		err = client.Start()
	}
	if err != nil {
		return nil, err
	}
	responders[asked.Handle] = &responder{client, replies}
	return answer{}, nil
}

func unrespond(asked *request) (answer, error) {
	of := responders[asked.Handle]
	delete(responders, asked.Handle)
	err := of.consumer.Shutdown()
	if other := of.replies.Shutdown(); err == nil {
		err = other
	}
	return answer{}, err
}

func ask(asked *request) (answer, error) {
	requesting.Lock()
	defer requesting.Unlock()
	client, known := requesters[asked.Namesrv]
	if !known {
		made, err := replying(asked.Namesrv, "requesting")
		if err != nil {
			return nil, err
		}
		client = made
		requesters[asked.Namesrv] = made
	}
	made := primitive.NewMessage(asked.Topic, []byte(asked.Key))
	made.WithKeys([]string{asked.Key})
	made.WithTag("A")
	reply, err := client.Request(context.Background(), time.Duration(asked.Timeout*float64(time.Second)), made)
	if err != nil {
		return answer{"timeout": err.Error()}, nil
	}
	return answer{"reply": string(reply.Body)}, nil
}
