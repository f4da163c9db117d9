package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	batch    = 50
	inFlight = 64
)

func sent(key, sum, tag string, result *primitive.SendResult, at int) (row, error) {
	if result.Status != primitive.SendOK {
		return row{}, fmt.Errorf("not SendOK: %s", result)
	}
	offsetIds := strings.Split(result.OffsetMsgID, ",")
	if at >= len(offsetIds) {
		return row{}, fmt.Errorf("message %d of a batch has no offset id: %s", at, result)
	}
	// Of a batch this client tells one unique id only.
	var unique interface{}
	if at == 0 && len(offsetIds) == 1 {
		unique = result.MsgID
	}
	return row{key, sum, result.MessageQueue.QueueId, result.QueueOffset + int64(at), tag, 0, offsetIds[at], unique}, nil
}

func produce(asked *request) (answer, error) {
	selector := producer.NewRoundRobinQueueSelector()
	if asked.Mode == "ordered" {
		selector = byOrder{}
	}
	client, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		producer.WithGroupName(asked.Group),
		producer.WithInstanceName(fmt.Sprintf("produce-%d", time.Now().UnixNano())),
		producer.WithSendMsgTimeout(60*time.Second),
		producer.WithQueueSelector(selector),
		producer.WithCredentials(asked.credentials()),
		producer.WithTls(asked.Tls),
	)
	if err != nil {
		return nil, err
	}
	if err = client.Start(); err != nil {
		return nil, err
	}
	// Not at once: a one-way send has only been handed to the socket when it returns.
	defer time.AfterFunc(20*time.Second, func() { client.Shutdown() })
	rows := make([]row, asked.Count)
	messages := make([]*primitive.Message, asked.Count)
	for i := range messages {
		made, key, sum := message(asked, asked.First+i)
		if asked.Mode == "ordered" {
			made.WithShardingKey(fmt.Sprint((asked.First + i) % 10))
		}
		messages[i] = made
		rows[i] = row{key, sum, nil, nil, made.GetTags(), 0, nil, nil}
	}
	fill := func(i int, result *primitive.SendResult, at int) error {
		filled, err := sent(rows[i][0].(string), rows[i][1].(string), rows[i][4].(string), result, at)
		if err == nil {
			rows[i] = filled
		}
		return err
	}
	ctx := context.Background()
	switch asked.Mode {
	case "sync", "ordered":
		for i, made := range messages {
			result, err := client.SendSync(ctx, made)
			if err == nil {
				err = fill(i, result, 0)
			}
			if err != nil {
				return nil, err
			}
		}
	case "async":
		if err := async(client, messages, fill); err != nil {
			return nil, err
		}
	case "oneway":
		for _, made := range messages {
			if err := client.SendOneWay(ctx, made); err != nil {
				return nil, err
			}
		}
	case "batch":
		for i := 0; i < len(messages); i += batch {
			end := i + batch
			if end > len(messages) {
				end = len(messages)
			}
			result, err := client.SendSync(ctx, messages[i:end]...)
			if err != nil {
				return nil, err
			}
			for at := 0; at < end-i; at++ {
				if err := fill(i+at, result, at); err != nil {
					return nil, err
				}
			}
		}
	default:
		return nil, fmt.Errorf("the client has no such call: %s", asked.Mode)
	}
	return answer{"rows": rows}, nil
}

// byOrder chooses the queue by the sharding key, which is the number of the order.
type byOrder struct{}

func (byOrder) Select(message *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	var order int
	fmt.Sscan(message.GetShardingKey(), &order)
	return queues[order%len(queues)]
}

func async(client rocketmq.Producer, messages []*primitive.Message, fill func(int, *primitive.SendResult, int) error) error {
	free := make(chan struct{}, inFlight)
	var all sync.WaitGroup
	var lock sync.Mutex
	var failure error
	fail := func(err error) {
		lock.Lock()
		defer lock.Unlock()
		if err != nil {
			failure = err
		}
	}
	for i, made := range messages {
		at := i
		free <- struct{}{}
		all.Add(1)
		err := client.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			if err == nil {
				err = fill(at, result, 0)
			}
			fail(err)
			<-free
			all.Done()
		}, made)
		if err != nil {
			return err
		}
	}
	all.Wait()
	return failure
}
