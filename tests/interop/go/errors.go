package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
)

const absent = a2a.TaskID("01890a5d-ac96-774b-bcce-b302099a8057")

// is holds an error to its kind, and to a text for people.
func is(err, kind error) *a2a.Error {
	if !errors.Is(err, kind) {
		fail("%v (%T) is not %q", err, err, kind)
	}
	var detailed *a2a.Error
	if !errors.As(err, &detailed) || detailed.Message == "" {
		fail("%v (%T) has no details", err, err)
	}
	return detailed
}

// names holds an error to invalid parameters, and to the names of the wrong ones.
func (t *talk) names(err error, fields ...string) {
	detailed := is(err, a2a.ErrInvalidParams)
	details := workAroundViolations(t, detailed)
	for _, field := range fields {
		if !strings.Contains(details, field) {
			fail("%v does not name %s: %s", err, field, details)
		}
	}
}

// only is the failure of a stream, which comes before any item.
func only(events iter.Seq2[a2a.Event, error]) error {
	for event, err := range events {
		if err == nil {
			fail("an item came: %+v", event)
		}
		return err
	}
	return nil
}

func errorTaskNotFound(t *talk) {
	_, got := t.client.GetTask(t, &a2a.GetTaskRequest{ID: absent})
	_, odd := t.client.GetTask(t, &a2a.GetTaskRequest{ID: "made-up"})
	_, canceled := t.client.CancelTask(t, &a2a.CancelTaskRequest{ID: absent})
	_, sent := t.client.SendMessage(t, sending("x", toTask(absent)))
	for _, err := range []error{got, odd, canceled, sent} {
		equal("the text", is(err, a2a.ErrTaskNotFound).Message, got.Error())
	}
}

func errorTaskNotFoundStreaming(t *talk) {
	missing := &a2a.SubscribeToTaskRequest{ID: absent}
	is(workAroundEarlyErrors(t, only(t.client.SubscribeToTask(t, missing)), a2a.ErrTaskNotFound), a2a.ErrTaskNotFound)
	sent := only(t.client.SendStreamingMessage(t, sending("x", toTask(absent))))
	is(workAroundEarlyErrors(t, sent, a2a.ErrTaskNotFound), a2a.ErrTaskNotFound)
}

func errorTaskNotCancelable(t *talk) {
	done := t.send("hello")
	_, err := t.client.CancelTask(t, &a2a.CancelTaskRequest{ID: done.ID})
	is(err, a2a.ErrTaskNotCancelable)
}

func errorUnsupportedOperation(t *talk) {
	done := t.send("hello")
	_, err := t.client.SendMessage(t, sending("more", toTask(done.ID)))
	is(err, a2a.ErrUnsupportedOperation)
}

func errorUnsupportedOperationStreaming(t *talk) {
	kind := a2a.ErrUnsupportedOperation
	done := t.send("hello")
	ended := only(t.client.SubscribeToTask(t, &a2a.SubscribeToTaskRequest{ID: done.ID}))
	is(workAroundEarlyErrors(t, ended, kind), kind)
	more := only(t.client.SendStreamingMessage(t, sending("more", toTask(done.ID))))
	is(workAroundEarlyErrors(t, more, kind), kind)
}

func errorInvalidParams(t *talk) {
	asked := t.send("ask what?")
	_, err := t.client.GetTask(t, &a2a.GetTaskRequest{ID: asked.ID, HistoryLength: number(-1)})
	t.names(err, "history_length")
	_, err = t.client.SendMessage(t, sending("x", history(-1)))
	t.names(err, "configuration.history_length")
	_, err = t.client.SendMessage(t, sending("", withParts()))
	t.names(err, "message.parts")
	elsewhere := sending("x", toTask(asked.ID), inContext(a2a.NewContextID()))
	_, err = t.client.SendMessage(t, elsewhere)
	t.names(err, "message.context_id")
	for _, size := range []int{-1, 101} {
		_, err = t.client.ListTasks(t, &a2a.ListTasksRequest{PageSize: size})
		t.names(err, "page_size")
	}
	for _, token := range []string{"0", "50", "made up"} {
		_, err = t.client.ListTasks(t, &a2a.ListTasksRequest{PageToken: token})
		t.names(err, "page_token")
	}
	// All that is wrong is told together.
	_, err = t.client.ListTasks(t, &a2a.ListTasksRequest{PageSize: 101, HistoryLength: number(-1)})
	t.names(err, "page_size", "history_length")
}

func errorContentType(t *talk) {
	picture := &a2a.Part{Content: a2a.Raw{0, 1, 2}, MediaType: "image/png"}
	_, err := t.client.SendMessage(t, sending("", withParts(picture)))
	is(err, a2a.ErrUnsupportedContentType)
}

func errorPushNotSupported(t *talk) {
	config := &a2a.PushConfig{TaskID: absent, URL: "https://example.com/hook"}
	_, err := t.client.CreateTaskPushConfig(t, config)
	is(err, a2a.ErrPushNotificationNotSupported)
	_, err = t.client.SendMessage(t, sending("x", func(r *a2a.SendMessageRequest) {
		r.Config.PushConfig = config
	}))
	is(err, a2a.ErrPushNotificationNotSupported)
}

func errorExtendedCard(t *talk) {
	// The client itself refuses by the card, and says another kind than the protocol does.
	_, err := t.client.GetExtendedAgentCard(t, &a2a.GetExtendedAgentCardRequest{})
	if !errors.Is(err, a2a.ErrExtendedCardNotConfigured) {
		fail("%v", err)
	}
	promising := *t.card
	promising.Capabilities.ExtendedAgentCard = true
	client := must(newClient(t, &promising, t.binding))
	defer client.Destroy()
	_, err = client.GetExtendedAgentCard(t, &a2a.GetExtendedAgentCardRequest{})
	is(err, a2a.ErrUnsupportedOperation)
}

// anotherVersion says a version of the protocol that this SDK does not speak.
type anotherVersion struct {
	a2aclient.PassthroughInterceptor
	values []string
}

func (v anotherVersion) Before(ctx context.Context, r *a2aclient.Request) (context.Context, any, error) {
	r.ServiceParams[a2a.SvcParamVersion] = v.values
	return ctx, nil, nil
}

func errorVersion(t *talk) {
	for _, values := range [][]string{nil, {"0.3"}, {"9.9"}} {
		says := a2aclient.WithCallInterceptors(anotherVersion{values: values})
		client := must(newClient(t, t.card, t.binding, says))
		_, err := client.SendMessage(t, sending("x"))
		is(err, a2a.ErrVersionNotSupported)
		must(0, client.Destroy())
	}
}

func (t *talk) String() string { return fmt.Sprint(t.binding) }
