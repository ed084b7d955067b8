// Runs every scenario of ../README.md with the official Go SDK.
//
//	client BASE_URL BINDING...
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

var scenarios = []struct {
	name string
	run  func(*talk)
}{
	{"card", card},
	{"send_blocking", sendBlocking},
	{"send_at_once", sendAtOnce},
	{"send_streaming", sendStreaming},
	{"subscribe", subscribe},
	{"resubscribe", resubscribe},
	{"ask_and_answer", askAndAnswer},
	{"ask_and_answer_streaming", askAndAnswerStreaming},
	{"direct_reply", directReply},
	{"direct_reply_streaming", directReplyStreaming},
	{"fail_and_reject", failAndReject},
	{"authorization", authorization},
	{"parts", parts},
	{"cancel", cancel},
	{"leave", leave},
	{"tenants", tenants},
	{"history_length", historyLength},
	{"list_filters", listFilters},
	{"list_walk", listWalk},
	{"error_task_not_found", errorTaskNotFound},
	{"error_task_not_found_streaming", errorTaskNotFoundStreaming},
	{"error_task_not_cancelable", errorTaskNotCancelable},
	{"error_unsupported_operation", errorUnsupportedOperation},
	{"error_unsupported_operation_streaming", errorUnsupportedOperationStreaming},
	{"error_invalid_params", errorInvalidParams},
	{"error_content_type", errorContentType},
	{"error_push_not_supported", errorPushNotSupported},
	{"error_extended_card", errorExtendedCard},
	{"error_version", errorVersion},
}

// runAll runs every scenario on one binding, or those named in ONLY.
func runAll(baseURL string, binding a2a.TransportProtocol) error {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Minute)
	defer done()
	t, err := connect(ctx, baseURL, binding)
	if err != nil {
		return fmt.Errorf("%s: %w", binding, err)
	}
	chosen := os.Getenv("ONLY")
	for _, scenario := range scenarios {
		if chosen != "" && !slices.Contains(strings.Split(chosen, ","), scenario.name) {
			continue
		}
		if err := attempt(t, scenario.run); err != nil {
			return fmt.Errorf("%s %s: %w", binding, scenario.name, err)
		}
		fmt.Println("ok", binding, scenario.name)
	}
	return t.client.Destroy()
}

// attempt turns the panic that ends a scenario into its error.
func attempt(t *talk, run func(*talk)) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			expected, ok := problem.(error)
			if !ok {
				panic(problem)
			}
			err = expected
		}
	}()
	run(t)
	return nil
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: client BASE_URL BINDING...")
		os.Exit(64)
	}
	var wait sync.WaitGroup
	failures := make(chan error, len(os.Args))
	for _, binding := range os.Args[2:] {
		wait.Go(func() {
			if err := runAll(os.Args[1], a2a.TransportProtocol(binding)); err != nil {
				failures <- err
			}
		})
	}
	wait.Wait()
	close(failures)
	failed := false
	for err := range failures {
		failed = true
		fmt.Fprintln(os.Stderr, err)
	}
	if failed {
		os.Exit(1)
	}
}
