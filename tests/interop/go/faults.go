package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/errordetails"
)

// What this SDK itself does wrong, as told in the README beside. A scenario that has to work
// around such a fault says so here; one that is mended fails, so that its workaround goes.

var met sync.Map

// fault tells that the fault was met; still is whether the SDK has it.
func fault(name string, still bool) {
	if !still {
		fail("the SDK no longer has the fault %s: take its workaround out", name)
	}
	if _, before := met.LoadOrStore(name, true); !before {
		fmt.Println("fault", name)
	}
}

// workAroundDataParts is what of these parts the client can carry: over gRPC the SDK refuses to send
// data that is no object, and over the others it cannot read null.
func workAroundDataParts(t *talk, parts a2a.ContentParts) a2a.ContentParts {
	name, why := "go-grpc-data-parts", "must be a map"
	carried := func(value any) bool { _, object := value.(map[string]any); return object }
	if t.binding != a2a.TransportProtocolGRPC {
		name, why = "go-rest-null-data", "unknown part content type"
		if t.binding == a2a.TransportProtocolJSONRPC {
			name = "go-jsonrpc-null-data"
		}
		carried = func(value any) bool { return value != nil }
	}
	var all a2a.ContentParts
	for _, part := range parts {
		if data, ok := part.Content.(a2a.Data); !ok || carried(data.Value) {
			all = append(all, part)
			continue
		}
		_, err := t.client.SendMessage(t, sending("", withParts(part)))
		fault(name, err != nil && strings.Contains(err.Error(), why))
	}
	return all
}

// workAroundTimes is the time that a listing can be asked for: over HTTP+JSON the SDK cuts it to
// whole seconds.
func workAroundTimes(t *talk, at time.Time) time.Time {
	if t.binding != a2a.TransportProtocolHTTPJSON {
		return at
	}
	cut := at.Truncate(time.Second)
	asking := &asked{}
	client := must(a2aclient.NewFromCard(
		t, t.card, a2aclient.WithDefaultsDisabled(), a2aclient.WithRESTTransport(&http.Client{Transport: asking}),
	))
	request := &a2a.ListTasksRequest{StatusTimestampAfter: &at}
	_, err := client.ListTasks(t, request)
	said := asking.query.Get("lastUpdatedAfter")
	fault("go-rest-times", err != nil && said == cut.UTC().Format(time.RFC3339))
	return cut
}

// asked keeps what a client asks for, and sends nothing.
type asked struct{ query url.Values }

func (a *asked) RoundTrip(request *http.Request) (*http.Response, error) {
	a.query = request.URL.Query()
	return nil, errors.New("nothing is sent")
}

// workAroundViolations is the text in which a field can be found: over gRPC the SDK drops every
// detail but ErrorInfo, so only the message is left.
func workAroundViolations(t *talk, err *a2a.Error) string {
	var details string
	for _, detail := range err.TypedDetails {
		if detail.TypeURL != errordetails.ErrorInfoType {
			details += fmt.Sprint(*detail)
		}
	}
	if t.binding != a2a.TransportProtocolGRPC {
		return details
	}
	fault("go-grpc-field-violations", details == "")
	return err.Message
}

// workAroundEarlyErrors is the error of a stream that failed before its first item: over JSON-RPC
// it comes as a JSON answer, which the SDK takes for a stream without items.
func workAroundEarlyErrors(t *talk, err, kind error) error {
	if t.binding != a2a.TransportProtocolJSONRPC {
		return err
	}
	fault("go-jsonrpc-early-stream-errors", err == nil)
	return a2a.NewError(kind, "an empty stream")
}
