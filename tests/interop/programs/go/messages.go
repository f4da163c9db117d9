package main

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"

	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// row is [key, digest, queue, offset, tag, reconsume times, offset message id, unique id].
type row [8]interface{}

func body(key string, i int) []byte {
	size := 16 + (37*i)%1000
	if i%50 == 0 {
		size = 6000
	}
	unit := []byte(key + " ")
	return bytes.Repeat(unit, size/len(unit)+1)[:size]
}

func digest(content []byte) string {
	sum := sha1.Sum(content)
	return hex.EncodeToString(sum[:8])
}

// message returns message i of the request's prefix, its key and the digest of its body.
func message(asked *request, i int) (*primitive.Message, string, string) {
	key := fmt.Sprintf("%s-%d", asked.Prefix, i)
	content := body(key, i)
	made := primitive.NewMessage(asked.Topic, content)
	made.WithKeys([]string{key})
	if len(asked.Tags) > 0 {
		made.WithTag(asked.Tags[i%len(asked.Tags)])
	}
	if asked.Number != "" {
		made.WithProperty(asked.Number, fmt.Sprint(i))
	}
	return made, key, digest(content)
}

func arrived(message *primitive.MessageExt) row {
	return row{
		message.GetKeys(), digest(message.Body), message.Queue.QueueId, message.QueueOffset,
		message.GetTags(), message.ReconsumeTimes, nil,
		message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex),
	}
}
