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
)

// arrivals is what one consumer was given, in order.
type arrivals struct {
	lock    sync.Mutex
	rows    []row
	counted int
	changed chan struct{}
	client  rocketmq.PushConsumer
}

func (a *arrivals) add(messages []*primitive.MessageExt) {
	a.lock.Lock()
	defer a.lock.Unlock()
	for _, message := range messages {
		a.rows = append(a.rows, arrived(message))
		if !strings.HasPrefix(message.GetKeys(), "warm") {
			a.counted++
		}
	}
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *arrivals) state() ([]row, int) {
	a.lock.Lock()
	defer a.lock.Unlock()
	return append([]row{}, a.rows...), a.counted
}

var consumers = map[string]*arrivals{}

func subscribe(asked *request) (answer, error) {
	model := consumer.Clustering
	if asked.Model == "broadcasting" {
		model = consumer.BroadCasting
	}
	options := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(asked.Handle),
		consumer.WithConsumerModel(model),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(asked.Orderly),
		consumer.WithCredentials(asked.credentials()),
		consumer.WithTls(asked.Tls),
	}
	if asked.MaxReconsume != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(*asked.MaxReconsume))
	}
	client, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	into := &arrivals{changed: make(chan struct{}, 1), client: client}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: asked.Expression}
	if asked.Sql {
		selector.Type = consumer.SQL92
	}
	failure := consumer.ConsumeRetryLater
	if asked.Orderly {
		failure = consumer.SuspendCurrentQueueAMoment
	}
	err = client.Subscribe(asked.Topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			into.add(messages)
			if asked.Fail || messages[0].ReconsumeTimes < asked.Failures {
				return failure, nil
			}
			return consumer.ConsumeSuccess, nil
		})
	if err == nil {
		err = client.Start()
	}
	if err != nil {
		return nil, err
	}
	consumers[asked.Handle] = into
	return answer{}, nil
}

func received(asked *request) (answer, error) {
	into := consumers[asked.Handle]
	end := time.After(time.Duration(asked.Timeout * float64(time.Second)))
	for {
		rows, counted := into.state()
		if counted >= asked.Count {
			return answer{"rows": rows}, nil
		}
		select {
		case <-into.changed:
		case <-end:
			rows, _ = into.state()
			return answer{"rows": rows}, nil
		}
	}
}

func persist(asked *request) (answer, error) {
	client, able := consumers[asked.Handle].client.(interface{ PersistConsumerOffset() error })
	if !able {
		return nil, fmt.Errorf("the client has no such call: persist")
	}
	return answer{}, client.PersistConsumerOffset()
}

func unsubscribe(asked *request) (answer, error) {
	into := consumers[asked.Handle]
	delete(consumers, asked.Handle)
	return answer{}, into.client.Shutdown()
}

// pull reads everything in a topic, queue by queue, with the pull consumer.
func pull(asked *request) (answer, error) {
	client, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(fmt.Sprintf("pull-%d", time.Now().UnixNano())),
	)
	if err != nil {
		return nil, err
	}
	if err = client.Assign(asked.Topic, nil); err != nil {
		return nil, err
	}
	if err = client.Start(); err != nil {
		return nil, err
	}
	defer client.Shutdown()
	queues, err := client.GetTopicRouteInfo(asked.Topic)
	if err != nil {
		return nil, err
	}
	rows := []row{}
	for _, queue := range queues {
		for offset, end := int64(0), int64(1); offset < end; {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			result, err := client.PullFrom(ctx, queue, offset, 32)
			cancel()
			if err != nil {
				return nil, err
			}
			for _, message := range result.GetMessageExts() {
				rows = append(rows, arrived(message))
			}
			if result.NextBeginOffset <= offset && result.MaxOffset > offset {
				return nil, fmt.Errorf("pull at %d of %s stays there: %s", offset, queue, result)
			}
			offset, end = result.NextBeginOffset, result.MaxOffset
		}
	}
	return answer{"rows": rows}, nil
}
