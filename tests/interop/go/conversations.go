package main

import (
	"context"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

func card(t *talk) {
	found := 0
	for _, face := range t.card.SupportedInterfaces {
		if face.ProtocolBinding == t.binding {
			found++
			equal("the protocol version", face.ProtocolVersion, a2a.ProtocolVersion("1.0"))
		}
	}
	equal("the number of interfaces of the binding", found, 1)
	if t.card.Name == "" || t.card.Description == "" || t.card.Version == "" || len(t.card.Skills) == 0 {
		fail("the card says too little: %+v", t.card)
	}
}

func sendBlocking(t *talk) {
	task := t.send("good morning")
	equal("the state", state(task), "COMPLETED")
	equal("the artifact", artifactTexts(task), []string{"good morning"})
	equal("the history", said(task.History), []string{"good morning"})
	equal("the message's task", task.History[0].TaskID, task.ID)
	if task.ContextID == "" || task.Status.Timestamp == nil {
		fail("the task lacks a context or a time: %+v", task)
	}
	equal("the task read again", t.get(task.ID), task)
}

func sendAtOnce(t *talk) {
	task := t.send("slow 1", atOnce)
	if now := state(task); now != "SUBMITTED" && now != "WORKING" {
		fail("a send that does not wait returned a %s task", now)
	}
	done := t.until(task.ID, a2a.TaskStateCompleted)
	equal("the artifact", artifactTexts(done), []string{"chunk 1 of 1"})
}

func sendStreaming(t *talk) {
	seen := follow(t.client.SendStreamingMessage(t, sending("slow 2")))
	equal("the states", seen.states, []string{"SUBMITTED", "WORKING", "COMPLETED"})
	equal("the artifact", artifactTexts(seen.task), []string{"chunk 1 of 2", "chunk 2 of 2"})
	seen.equals(t)
}

func subscribe(t *talk) {
	running := t.send("slow 2", atOnce)
	seen := follow(t.client.SubscribeToTask(t, &a2a.SubscribeToTaskRequest{ID: running.ID}))
	equal("the last state", seen.states[len(seen.states)-1], "COMPLETED")
	seen.equals(t)

	// A task that waits for its user is still to be watched.
	asked := t.send("ask which colour?")
	watched := &told{}
	answered := make(chan error, 1)
	for event, err := range t.client.SubscribeToTask(t, &a2a.SubscribeToTaskRequest{ID: asked.ID}) {
		watched.add(must(event, err))
		if len(watched.states) == 1 {
			go func() {
				_, err := t.client.SendMessage(t, sending("blue", toTask(asked.ID)))
				answered <- err
			}()
		}
	}
	must(0, <-answered)
	equal("the states", watched.states, []string{"INPUT_REQUIRED", "WORKING", "COMPLETED"})
	watched.equals(t)
}

func resubscribe(t *talk) {
	cut := follow(t.client.SendStreamingMessage(t, sending("slow 3")), func(event a2a.Event) bool {
		_, chunk := event.(*a2a.TaskArtifactUpdateEvent)
		return chunk
	})
	equal("the artifact so far", artifactTexts(cut.task), []string{"chunk 1 of 3"})
	seen := follow(t.client.SubscribeToTask(t, &a2a.SubscribeToTaskRequest{ID: cut.task.ID}))
	chunks := []string{"chunk 1 of 3", "chunk 2 of 3", "chunk 3 of 3"}
	equal("the artifact", artifactTexts(seen.task), chunks)
	seen.equals(t)
}

func askAndAnswer(t *talk) {
	asked := t.send("ask which colour?")
	equal("the state", state(asked), "INPUT_REQUIRED")
	equal("the question", texts(asked.Status.Message.Parts), []string{"which colour?"})
	done := t.send("blue", toTask(asked.ID), inContext(asked.ContextID))
	equal("the task", done.ID, asked.ID)
	equal("the state", state(done), "COMPLETED")
	equal("the history", said(done.History), []string{"ask which colour?", "which colour?", "blue"})
}

func askAndAnswerStreaming(t *talk) {
	asked := follow(t.client.SendStreamingMessage(t, sending("ask which size?")))
	equal("the last state", asked.states[len(asked.states)-1], "INPUT_REQUIRED")
	done := follow(t.client.SendStreamingMessage(t, sending("large", toTask(asked.task.ID))))
	equal("the task", done.task.ID, asked.task.ID)
	equal("the states", done.states, []string{"INPUT_REQUIRED", "WORKING", "COMPLETED"})
	done.equals(t)
}

func directReply(t *talk) {
	context := a2a.NewContextID()
	answer := must(t.client.SendMessage(t, sending("reply good evening", inContext(context))))
	reply, ok := answer.(*a2a.Message)
	if !ok {
		fail("the answer is %T", answer)
	}
	equal("the context", reply.ContextID, context)
	equal("the role", reply.Role, a2a.MessageRoleAgent)
	equal("the reply", texts(reply.Parts), []string{"good evening"})
	equal("the total", t.list(a2a.ListTasksRequest{ContextID: context}).TotalSize, 0)
}

func directReplyStreaming(t *talk) {
	var replies []string
	for event, err := range t.client.SendStreamingMessage(t, sending("reply good night")) {
		reply, ok := must(event, err).(*a2a.Message)
		if !ok {
			fail("the answer is %T", event)
		}
		replies = append(replies, texts(reply.Parts)...)
	}
	equal("the replies", replies, []string{"good night"})
}

func failAndReject(t *talk) {
	for text, wanted := range map[string]string{"fail no paper": "FAILED", "reject not mine": "REJECTED"} {
		task := t.send(text)
		equal("the state", state(task), wanted)
		_, why, _ := strings.Cut(text, " ")
		equal("the reason", texts(task.Status.Message.Parts), []string{why})
	}
}

func authorization(t *talk) {
	waiting := t.send("auth")
	equal("the state", state(waiting), "AUTH_REQUIRED")
	equal("the state", state(t.send("authorized now", toTask(waiting.ID))), "COMPLETED")
}

func parts(t *talk) {
	data := map[string]any{
		"list":    []any{1.0, 2.5, -3e9, nil, "ü", map[string]any{"deep": true}},
		"nothing": nil,
		"empty":   map[string]any{},
	}
	sent := a2a.ContentParts{
		{Content: a2a.Text("Grüße, 世界 🌍"), Metadata: map[string]any{"lang": "de"}},
		a2a.NewDataPart(data),
		{Content: a2a.Raw{0, 1, 254, 255}, Filename: "four.bin"},
		{Content: a2a.URL("https://example.com/a?b=c&d=%20"), Filename: "a file"},
	}
	for _, value := range []any{[]any{1.0, "two", nil}, "a text", 42.0, false, nil} {
		sent = append(sent, a2a.NewDataPart(value))
	}
	sent = workAroundDataParts(t, sent)
	task := t.send("", withParts(sent...), func(r *a2a.SendMessageRequest) {
		r.Message.Metadata = map[string]any{"trace": []any{"a", 1.0}}
	})
	equal("the state", state(task), "COMPLETED")
	equal("the artifact", task.Artifacts[0].Parts, sent)
	equal("the message", task.History[0].Parts, sent)
	equal("the metadata", task.History[0].Metadata, map[string]any{"trace": []any{"a", 1.0}})
}

func cancel(t *talk) {
	for _, task := range []*a2a.Task{t.send("slow 30", atOnce), t.send("ask really?")} {
		canceled := must(t.client.CancelTask(t, &a2a.CancelTaskRequest{ID: task.ID}))
		equal("the state", state(canceled), "CANCELED")
		equal("the state later", state(t.get(task.ID)), "CANCELED")
	}
}

func leave(t *talk) {
	where := a2a.NewContextID()
	ctx, leave := context.WithCancel(t)
	waiting := make(chan error, 1)
	go func() {
		_, err := t.client.SendMessage(ctx, sending("slow 2", inContext(where)))
		waiting <- err
	}()
	// Its task is listed after a second; then its sender goes away.
	task := eventually("listed task", func() *a2a.Task {
		if page := t.list(a2a.ListTasksRequest{ContextID: where}); len(page.Tasks) > 0 {
			return page.Tasks[0]
		}
		return nil
	})
	leave()
	if err := <-waiting; err == nil {
		fail("a send that was left has an answer")
	}
	t.until(task.ID, a2a.TaskStateCompleted)
}

func tenants(t *talk) {
	tenant := "tenant-" + a2a.NewContextID()
	task := t.send("hello", forTenant(tenant))
	mine := must(t.client.GetTask(t, &a2a.GetTaskRequest{ID: task.ID, Tenant: tenant}))
	equal("the task", mine, task)
	equal("the total", t.list(a2a.ListTasksRequest{Tenant: tenant}).TotalSize, 1)
	_, err := t.client.GetTask(t, &a2a.GetTaskRequest{ID: task.ID})
	is(err, a2a.ErrTaskNotFound)
}
