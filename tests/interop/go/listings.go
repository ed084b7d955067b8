package main

import (
	"slices"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

func historyLength(t *talk) {
	where := a2a.NewContextID()
	asked := t.send("ask which size?", inContext(where), history(0))
	equal("the history at 0", len(asked.History), 0)
	done := t.send("large", toTask(asked.ID), history(2))
	equal("the history at 2", said(done.History), []string{"which size?", "large"})
	for _, row := range []struct {
		length *int
		count  int
	}{{nil, 3}, {number(0), 0}, {number(1), 1}, {number(2), 2}, {number(50), 3}} {
		request := &a2a.GetTaskRequest{ID: done.ID, HistoryLength: row.length}
		equal("the history", len(must(t.client.GetTask(t, request)).History), row.count)
		count := row.count
		if row.length == nil {
			count = 0 // what a listing has unless it is asked for more
		}
		page := t.list(a2a.ListTasksRequest{ContextID: where, HistoryLength: row.length})
		equal("the history in a listing", len(page.Tasks[0].History), count)
	}
}

func listFilters(t *talk) {
	where := a2a.NewContextID()
	first := t.send("one", inContext(where))
	asked := t.send("ask two?", inContext(where))
	last := t.send("three", inContext(where))
	found := func(filters a2a.ListTasksRequest) []*a2a.Task {
		filters.ContextID = where
		page := t.list(filters)
		equal("the total", page.TotalSize, len(page.Tasks))
		equal("the next page's token", page.NextPageToken, "")
		return page.Tasks
	}
	ids := func(tasks ...*a2a.Task) []a2a.TaskID {
		all := []a2a.TaskID{}
		for _, task := range tasks {
			all = append(all, task.ID)
		}
		return all
	}
	listed := func(filters a2a.ListTasksRequest) []a2a.TaskID { return ids(found(filters)...) }

	equal("all", listed(a2a.ListTasksRequest{}), ids(last, asked, first))
	equal("those that ask", listed(a2a.ListTasksRequest{Status: a2a.TaskStateInputRequired}), ids(asked))
	completed := a2a.ListTasksRequest{Status: a2a.TaskStateCompleted}
	equal("those completed", listed(completed), ids(last, first))
	equal("those that failed", listed(a2a.ListTasksRequest{Status: a2a.TaskStateFailed}), ids())

	// At that time or after it.
	since := workAroundTimes(t, *asked.Status.Timestamp)
	late := []*a2a.Task{}
	for _, task := range []*a2a.Task{last, asked, first} {
		if !task.Status.Timestamp.Before(since) {
			late = append(late, task)
		}
	}
	equal("the late", listed(a2a.ListTasksRequest{StatusTimestampAfter: &since}), ids(late...))
	both := a2a.ListTasksRequest{StatusTimestampAfter: &since, Status: a2a.TaskStateInputRequired}
	equal("the late that ask", listed(both), ids(asked))
	never := time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
	equal("those to come", listed(a2a.ListTasksRequest{StatusTimestampAfter: &never}), ids())

	lean := found(completed)[0]
	equal("artifacts and history of a listing", len(lean.Artifacts)+len(lean.History), 0)
	completed.IncludeArtifacts = true
	completed.HistoryLength = number(10)
	equal("the whole task", found(completed)[0], last)
}

func listWalk(t *talk) {
	const count = 13
	where := a2a.NewContextID()
	var wanted []string
	for range count {
		wanted = append(wanted, string(t.send("a task", inContext(where)).ID))
	}
	slices.Sort(wanted)
	var order []string
	for _, size := range []int{1, 5, 13, 100, 0} {
		var ids []string
		request := a2a.ListTasksRequest{ContextID: where, PageSize: size}
		for {
			page := t.list(request)
			equal("the total", page.TotalSize, count)
			if used := page.PageSize; used != size && (size != 0 || used != 50) {
				fail("the page size is %d, not %d", used, size)
			}
			if len(page.Tasks) == 0 {
				fail("a page of a walk is empty")
			}
			for _, task := range page.Tasks {
				ids = append(ids, string(task.ID))
			}
			if request.PageToken = page.NextPageToken; request.PageToken == "" {
				break
			}
		}
		if order == nil {
			order = ids
		}
		equal("the order", strings.Join(ids, " "), strings.Join(order, " "))
	}
	slices.Sort(order)
	equal("the tasks", order, wanted)
}
