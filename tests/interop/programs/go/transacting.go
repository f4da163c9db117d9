package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// waiting is a message whose body is its key, with the tag A, a level and properties of the request's.
func waiting(asked *request) *primitive.Message {
	made := primitive.NewMessage(asked.Topic, []byte(asked.Key))
	made.WithKeys([]string{asked.Key})
	made.WithTag("A")
	if asked.Level > 0 {
		made.WithDelayTimeLevel(asked.Level)
	}
	for name, value := range asked.Properties {
		made.WithProperty(name, value)
	}
	return made
}

func told(result *primitive.SendResult) answer {
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprint(result.Status)
	}
	return answer{
		"status": status, "queue": result.MessageQueue.QueueId, "offset": result.QueueOffset,
		"offsetId": result.OffsetMsgID, "uniqueId": result.MsgID, "handle": nil,
	}
}

func delayed(asked *request) (answer, error) {
	client, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		producer.WithGroupName("delaying"),
		producer.WithInstanceName(fmt.Sprintf("delaying-%d", time.Now().UnixNano())),
		producer.WithSendMsgTimeout(60*time.Second),
	)
	if err != nil {
		return nil, err
	}
	if err = client.Start(); err != nil {
		return nil, err
	}
	defer client.Shutdown()
	result, err := client.SendSync(context.Background(), waiting(asked))
	if err != nil {
		return nil, err
	}
	return told(result), nil
}

// side is one transaction producer, what it answers to checks, and the checks it was asked.
type side struct {
	lock   sync.Mutex
	client rocketmq.TransactionProducer
	next   primitive.LocalTransactionState
	answer primitive.LocalTransactionState
	checks [][]interface{}
}

var (
	sides  = map[string]*side{}
	states = map[string]primitive.LocalTransactionState{
		"COMMIT_MESSAGE":   primitive.CommitMessageState,
		"ROLLBACK_MESSAGE": primitive.RollbackMessageState,
		"UNKNOW":           primitive.UnkonwnState,
	}
)

func (s *side) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.next
}

func (s *side) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.checks = append(s.checks, []interface{}{
		message.GetKeys(), string(message.Body), message.Topic, message.TransactionId,
		message.GetProperty("TRANSACTION_CHECK_TIMES"), message.GetTags(),
	})
	return s.answer
}

func txstart(asked *request) (answer, error) {
	made := &side{answer: states[asked.Answer], checks: [][]interface{}{}}
	client, err := rocketmq.NewTransactionProducer(made,
		producer.WithNameServer(primitive.NamesrvAddr{asked.Namesrv}),
		producer.WithGroupName(asked.Group),
		producer.WithInstanceName(asked.Handle),
		producer.WithSendMsgTimeout(60*time.Second),
	)
	if err != nil {
		return nil, err
	}
	made.client = client
	sides[asked.Handle] = made
	return answer{}, client.Start()
}

func txsend(asked *request) (answer, error) {
	of := sides[asked.Handle]
	of.lock.Lock()
	of.next = states[asked.State]
	of.lock.Unlock()
	result, err := of.client.SendMessageInTransaction(context.Background(), waiting(asked))
	if err != nil {
		return nil, err
	}
	return told(result.SendResult), nil
}

func txanswer(asked *request) (answer, error) {
	of := sides[asked.Handle]
	of.lock.Lock()
	defer of.lock.Unlock()
	of.answer = states[asked.Answer]
	return answer{}, nil
}

func txchecks(asked *request) (answer, error) {
	of := sides[asked.Handle]
	of.lock.Lock()
	defer of.lock.Unlock()
	return answer{"rows": of.checks}, nil
}

func txstop(asked *request) (answer, error) {
	of := sides[asked.Handle]
	delete(sides, asked.Handle)
	return answer{}, of.client.Shutdown()
}
