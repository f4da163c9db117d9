// Reads requests, runs them with the Go client, writes answers: see ../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type request struct {
	ID         int      `json:"id"`
	Op         string   `json:"op"`
	Namesrv    string   `json:"namesrv"`
	Group      string   `json:"group"`
	Topic      string   `json:"topic"`
	Prefix     string   `json:"prefix"`
	Count      int      `json:"count"`
	First      int      `json:"first"`
	Mode       string   `json:"mode"`
	Tags       []string `json:"tags"`
	Handle     string   `json:"handle"`
	Expression string   `json:"expression"`
	Model      string   `json:"model"`
	Orderly    bool     `json:"orderly"`
	Fail       bool     `json:"fail"`
	Failures   int32    `json:"failures"`
	Sql        bool     `json:"sql"`
	Number     string   `json:"number"`
	Key        string   `json:"key"`
	Level      int      `json:"level"`
	State      string   `json:"state"`
	Answer     string   `json:"answer"`
	Account    string   `json:"account"`
	Tls        bool     `json:"tls"`

	Properties map[string]string `json:"properties"`

	MaxReconsume *int32  `json:"maxReconsume"`
	Timeout      float64 `json:"timeout"`
}

// credentials are of the account, "key:secret"; empty without one.
func (r *request) credentials() primitive.Credentials {
	key, secret, _ := strings.Cut(r.Account, ":")
	return primitive.Credentials{AccessKey: key, SecretKey: secret}
}

type answer map[string]interface{}

var ops map[string]func(*request) (answer, error)

func main() {
	rlog.SetLogLevel("warn")
	ops = map[string]func(*request) (answer, error){
		"produce":     produce,
		"subscribe":   subscribe,
		"received":    received,
		"persist":     persist,
		"unsubscribe": unsubscribe,
		"pull":        pull,
		"delayed":     delayed,
		"respond":     respond,
		"unrespond":   unrespond,
		"request":     ask,
		"txstart":     txstart,
		"txsend":      txsend,
		"txanswer":    txanswer,
		"txchecks":    txchecks,
		"txstop":      txstop,
		"ops": func(*request) (answer, error) {
			names := []string{}
			for name := range ops {
				names = append(names, name)
			}
			sort.Strings(names)
			return answer{"ops": names}, nil
		},
	}
	answers := json.NewEncoder(os.Stdout)
	requests := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked request
		if err := json.Unmarshal(line, &asked); err != nil {
			panic(err)
		}
		var result answer
		if op, known := ops[asked.Op]; known {
			result, err = op(&asked)
		} else {
			err = fmt.Errorf("the client has no such call: %s", asked.Op)
		}
		if err != nil {
			result = answer{"error": err.Error()}
		}
		result["id"] = asked.ID
		if err := answers.Encode(result); err != nil {
			panic(err)
		}
	}
}
