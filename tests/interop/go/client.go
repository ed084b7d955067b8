package main

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// talk is a client on one binding, and what the scenarios ask of its answers. Whatever is not as
// it should be ends the scenario by a panic.
type talk struct {
	context.Context
	client  *a2aclient.Client
	card    *a2a.AgentCard
	binding a2a.TransportProtocol
}

// connect finds the agent by the card under baseURL; the client prefers one binding.
func connect(ctx context.Context, baseURL string, binding a2a.TransportProtocol) (*talk, error) {
	card, err := agentcard.DefaultResolver.Resolve(ctx, baseURL)
	if err != nil {
		return nil, err
	}
	client, err := newClient(ctx, card, binding)
	return &talk{ctx, client, card, binding}, err
}

func newClient(
	ctx context.Context, card *a2a.AgentCard, binding a2a.TransportProtocol, more ...a2aclient.FactoryOption,
) (*a2aclient.Client, error) {
	only := a2aclient.WithDefaultsDisabled()
	var transport a2aclient.FactoryOption
	switch binding {
	case a2a.TransportProtocolGRPC:
		plain := grpc.WithTransportCredentials(insecure.NewCredentials())
		transport = a2agrpc.WithGRPCTransport(plain)
	case a2a.TransportProtocolJSONRPC:
		transport = a2aclient.WithJSONRPCTransport(nil)
	case a2a.TransportProtocolHTTPJSON:
		transport = a2aclient.WithRESTTransport(nil)
	default:
		return nil, fmt.Errorf("there is no binding %s", binding)
	}
	return a2aclient.NewFromCard(ctx, card, append(more, only, transport)...)
}

func fail(format string, values ...any) { panic(fmt.Errorf(format, values...)) }

func equal(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		fail("%s is %+v, not %+v", what, got, want)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fail("%w", err)
	}
	return value
}

func number(n int) *int { return &n }

// sending is a message as the user; the options change its request.
func sending(text string, options ...func(*a2a.SendMessageRequest)) *a2a.SendMessageRequest {
	message := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
	request := &a2a.SendMessageRequest{Message: message, Config: &a2a.SendMessageConfig{}}
	for _, option := range options {
		option(request)
	}
	return request
}

type option = func(*a2a.SendMessageRequest)

func toTask(id a2a.TaskID) option      { return func(r *a2a.SendMessageRequest) { r.Message.TaskID = id } }
func inContext(id string) option       { return func(r *a2a.SendMessageRequest) { r.Message.ContextID = id } }
func atOnce(r *a2a.SendMessageRequest) { r.Config.ReturnImmediately = true }
func history(length int) option {
	return func(r *a2a.SendMessageRequest) { r.Config.HistoryLength = &length }
}
func forTenant(tenant string) option  { return func(r *a2a.SendMessageRequest) { r.Tenant = tenant } }
func withParts(p ...*a2a.Part) option { return func(r *a2a.SendMessageRequest) { r.Message.Parts = p } }

// send sends a text that makes a task.
func (t *talk) send(text string, options ...option) *a2a.Task {
	answer := must(t.client.SendMessage(t, sending(text, options...)))
	task, ok := answer.(*a2a.Task)
	if !ok {
		fail("%q was answered with %T", text, answer)
	}
	return task
}

func (t *talk) get(id a2a.TaskID) *a2a.Task {
	return must(t.client.GetTask(t, &a2a.GetTaskRequest{ID: id}))
}

func (t *talk) list(request a2a.ListTasksRequest) *a2a.ListTasksResponse {
	return must(t.client.ListTasks(t, &request))
}

// eventually looks again and again until there is something.
func eventually[T any](what string, look func() *T) *T {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if found := look(); found != nil {
			return found
		}
	}
	fail("in 30 seconds there was no %s", what)
	return nil
}

// until reads the task until it is in a state.
func (t *talk) until(id a2a.TaskID, wanted a2a.TaskState) *a2a.Task {
	return eventually(string(wanted), func() *a2a.Task {
		if task := t.get(id); task.Status.State == wanted {
			return task
		}
		return nil
	})
}

func state(task *a2a.Task) string { return short(task.Status.State) }

func short(state a2a.TaskState) string {
	return strings.TrimPrefix(string(state), "TASK_STATE_")
}

func texts(parts a2a.ContentParts) []string {
	var all []string
	for _, part := range parts {
		all = append(all, part.Text())
	}
	return all
}

// said is the first text of each message.
func said(messages []*a2a.Message) []string {
	var all []string
	for _, message := range messages {
		all = append(all, message.Parts[0].Text())
	}
	return all
}

func artifactTexts(task *a2a.Task) []string {
	equal("the number of artifacts", len(task.Artifacts), 1)
	return texts(task.Artifacts[0].Parts)
}

// told is what a stream tells of a task: its snapshot with every update applied.
type told struct {
	task   *a2a.Task
	states []string
}

func (s *told) add(event a2a.Event) {
	switch event := event.(type) {
	case *a2a.Task:
		if s.task != nil {
			fail("the task came twice in one stream")
		}
		s.task = event
		s.states = append(s.states, state(event))
		return
	case *a2a.TaskStatusUpdateEvent:
		equal("the task of an update", event.TaskInfo(), s.task.TaskInfo())
		s.task.Status = event.Status
		s.states = append(s.states, state(s.task))
	case *a2a.TaskArtifactUpdateEvent:
		equal("the task of an update", event.TaskInfo(), s.task.TaskInfo())
		for _, known := range s.task.Artifacts {
			if known.ID == event.Artifact.ID {
				equal("append of a known artifact", event.Append, true)
				known.Parts = append(known.Parts, event.Artifact.Parts...)
				return
			}
		}
		s.task.Artifacts = append(s.task.Artifacts, event.Artifact)
	default:
		fail("a stream of a task has %T", event)
	}
}

// follow reads a stream to its end, or until an event is enough.
func follow(events iter.Seq2[a2a.Event, error], enough ...func(a2a.Event) bool) *told {
	seen := &told{}
	for event, err := range events {
		seen.add(must(event, err))
		if len(enough) > 0 && enough[0](event) {
			return seen
		}
	}
	if seen.task == nil {
		fail("the stream ended without an item")
	}
	return seen
}

// equals compares the task told with the task stored.
func (s *told) equals(t *talk) {
	stored := t.get(s.task.ID)
	equal("the status", s.task.Status, stored.Status)
	equal("the artifacts", s.task.Artifacts, stored.Artifacts)
}
