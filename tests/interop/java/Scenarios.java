import static java.util.stream.Collectors.joining;

import io.a2a.client.MessageEvent;
import io.a2a.jsonrpc.common.json.MethodNotFoundJsonMappingException;
import io.a2a.spec.A2AClientException;
import io.a2a.spec.A2AError;
import io.a2a.spec.ContentTypeNotSupportedError;
import io.a2a.spec.DataPart;
import io.a2a.spec.FilePart;
import io.a2a.spec.FileWithBytes;
import io.a2a.spec.FileWithUri;
import io.a2a.spec.InvalidParamsError;
import io.a2a.spec.ListTasksParams;
import io.a2a.spec.Part;
import io.a2a.spec.PushNotificationConfig;
import io.a2a.spec.PushNotificationNotSupportedError;
import io.a2a.spec.Task;
import io.a2a.spec.TaskIdParams;
import io.a2a.spec.TaskNotCancelableError;
import io.a2a.spec.TaskNotFoundError;
import io.a2a.spec.TaskPushNotificationConfig;
import io.a2a.spec.TaskQueryParams;
import io.a2a.spec.TaskState;
import io.a2a.spec.TextPart;
import io.a2a.spec.UnsupportedOperationError;
import io.a2a.spec.VersionNotSupportedError;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** The scenarios of the README beside. */
final class Scenarios {
    interface Scenario {
        void run(Talk talk) throws Exception;
    }

    interface Call {
        void make() throws Exception;
    }

    private static final String ABSENT = "01890a5d-ac96-774b-bcce-b302099a8057";

    static final Map<String, Scenario> ALL = new LinkedHashMap<>();

    static {
        ALL.put("card", Scenarios::card);
        ALL.put("send_blocking", Scenarios::sendBlocking);
        ALL.put("send_at_once", Scenarios::sendAtOnce);
        ALL.put("send_streaming", Scenarios::sendStreaming);
        ALL.put("subscribe", Scenarios::subscribe);
        ALL.put("resubscribe", Scenarios::resubscribe);
        ALL.put("ask_and_answer", Scenarios::askAndAnswer);
        ALL.put("ask_and_answer_streaming", Scenarios::askAndAnswerStreaming);
        ALL.put("direct_reply", Scenarios::directReply);
        ALL.put("direct_reply_streaming", Scenarios::directReplyStreaming);
        ALL.put("fail_and_reject", Scenarios::failAndReject);
        ALL.put("authorization", Scenarios::authorization);
        ALL.put("parts", Scenarios::parts);
        ALL.put("cancel", Scenarios::cancel);
        ALL.put("leave", Scenarios::leave);
        ALL.put("tenants", Scenarios::tenants);
        ALL.put("history_length", Scenarios::historyLength);
        ALL.put("list_filters", Scenarios::listFilters);
        ALL.put("list_walk", Scenarios::listWalk);
        ALL.put("error_task_not_found", Scenarios::errorTaskNotFound);
        ALL.put("error_task_not_found_streaming", Scenarios::errorTaskNotFoundStreaming);
        ALL.put("error_task_not_cancelable", Scenarios::errorTaskNotCancelable);
        ALL.put("error_unsupported_operation", Scenarios::errorUnsupportedOperation);
        ALL.put("error_unsupported_operation_streaming", Scenarios::errorUnsupportedOperationStreaming);
        ALL.put("error_invalid_params", Scenarios::errorInvalidParams);
        ALL.put("error_content_type", Scenarios::errorContentType);
        ALL.put("error_push_not_supported", Scenarios::errorPushNotSupported);
        ALL.put("error_extended_card", Scenarios::errorExtendedCard);
        ALL.put("error_version", Scenarios::errorVersion);
    }

    private Scenarios() {}

    static void card(Talk talk) {
        String versions = talk.faces().stream().map(face -> face.protocolVersion()).collect(joining(" "));
        Talk.equal("the versions of the binding", versions, "1.0");
        Talk.check(!talk.card.name().isEmpty() && !talk.card.skills().isEmpty(), "" + talk.card);
    }

    static void sendBlocking(Talk talk) throws Exception {
        Task task = talk.send("good morning");
        Talk.equal("the state", Talk.state(task), "COMPLETED");
        Talk.equal("the artifact", Talk.artifact(task), "good morning");
        Talk.equal("the history", Talk.said(task), "good morning");
        Talk.equal("the message's task", task.history().get(0).taskId(), task.id());
        Talk.equal("the task read again", talk.get(task.id()), task);
    }

    static void sendAtOnce(Talk talk) throws Exception {
        Task task = talk.send(Talk.sending("slow 1").atOnce());
        Talk.check(!task.status().state().isFinal(), "the task has ended: " + task);
        Talk.equal("the artifact", Talk.artifact(talk.until(task.id(), "COMPLETED")), "chunk 1 of 1");
    }

    static void sendStreaming(Talk talk) throws Exception {
        var told = talk.follow(talk.streaming(Talk.sending("slow 2")));
        Talk.equal("the states", told.states(), List.of("SUBMITTED", "WORKING", "COMPLETED"));
        Talk.equal("the artifact", Talk.artifact(told.task()), "chunk 1 of 2|chunk 2 of 2");
        isStored(talk, told);
    }

    /** The task told is the task stored. */
    private static void isStored(Talk talk, Talk.Told told) throws Exception {
        Task stored = talk.get(told.task().id());
        Talk.equal("the status", told.task().status(), stored.status());
        Talk.equal("the artifacts", told.task().artifacts(), stored.artifacts());
    }

    static void subscribe(Talk talk) throws Exception {
        Task running = talk.send(Talk.sending("slow 2").atOnce());
        var told = talk.follow(talk.subscription(running.id()));
        Talk.equal("the state", Talk.state(told.task()), "COMPLETED");
        isStored(talk, told);

        // A task that waits for its user is still to be watched.
        Task asked = talk.send("ask which colour?");
        List<Exception> failures = new ArrayList<>();
        Thread answering = new Thread(() -> {
            try {
                talk.send(Talk.sending("blue").task(asked.id()));
            } catch (Exception error) {
                failures.add(error);
            }
        });
        var watched = talk.follow(talk.subscription(asked.id()), seen -> {
            if (answering.getState() == Thread.State.NEW) {
                answering.start();
            }
            return false;
        });
        answering.join();
        Talk.equal("the failures", failures, List.of());
        Talk.equal("the states", watched.states(), List.of("INPUT_REQUIRED", "WORKING", "COMPLETED"));
        isStored(talk, watched);
    }

    static void resubscribe(Talk talk) throws Exception {
        var cut = talk.follow(talk.streaming(Talk.sending("slow 3")),
                seen -> seen.task().artifacts() != null && !seen.task().artifacts().isEmpty());
        Talk.equal("the artifact so far", Talk.artifact(cut.task()), "chunk 1 of 3");
        var told = talk.follow(talk.subscription(cut.task().id()));
        Talk.equal("the artifact", Talk.artifact(told.task()), "chunk 1 of 3|chunk 2 of 3|chunk 3 of 3");
        isStored(talk, told);
    }

    static void askAndAnswer(Talk talk) throws Exception {
        Task asked = talk.send("ask which colour?");
        Talk.equal("the state", Talk.state(asked), "INPUT_REQUIRED");
        Talk.equal("the question", Talk.texts(asked.status().message().parts()), "which colour?");
        Task done = talk.send(Talk.sending("blue").task(asked.id()).context(asked.contextId()));
        Talk.equal("the task", done.id(), asked.id());
        Talk.equal("the state", Talk.state(done), "COMPLETED");
        Talk.equal("the history", Talk.said(done), "ask which colour?|which colour?|blue");
    }

    static void askAndAnswerStreaming(Talk talk) throws Exception {
        var asked = talk.follow(talk.streaming(Talk.sending("ask which size?")));
        Talk.equal("the state", Talk.state(asked.task()), "INPUT_REQUIRED");
        var done = talk.follow(talk.streaming(Talk.sending("large").task(asked.task().id())));
        Talk.equal("the states", done.states(), List.of("INPUT_REQUIRED", "WORKING", "COMPLETED"));
        isStored(talk, done);
    }

    static void directReply(Talk talk) throws Exception {
        String context = Talk.context();
        var answer = talk.answer(Talk.sending("reply good evening").context(context));
        Talk.check(answer instanceof MessageEvent, "the answer is " + answer);
        var reply = ((MessageEvent) answer).getMessage();
        Talk.equal("the context", reply.contextId(), context);
        Talk.equal("the reply", Talk.texts(reply.parts()), "good evening");
        Talk.equal("the total", talk.list(ListTasksParams.builder().contextId(context)).totalSize(), 0);
    }

    static void directReplyStreaming(Talk talk) throws Exception {
        var told = talk.follow(talk.streaming(Talk.sending("reply good night")));
        Talk.equal("the number of messages", told.messages().size(), 1);
        Talk.equal("the reply", Talk.texts(told.messages().get(0).parts()), "good night");
    }

    static void failAndReject(Talk talk) throws Exception {
        Task failed = talk.send("fail no paper");
        Talk.equal("the state", Talk.state(failed), "FAILED");
        Talk.equal("the reason", Talk.texts(failed.status().message().parts()), "no paper");
        Task rejected = talk.send("reject not mine");
        Talk.equal("the state", Talk.state(rejected), "REJECTED");
        Talk.equal("the reason", Talk.texts(rejected.status().message().parts()), "not mine");
    }

    static void authorization(Talk talk) throws Exception {
        Task waiting = talk.send("auth");
        Talk.equal("the state", Talk.state(waiting), "AUTH_REQUIRED");
        Task done = talk.send(Talk.sending("authorized now").task(waiting.id()));
        Talk.equal("the state", Talk.state(done), "COMPLETED");
    }

    static void parts(Talk talk) throws Exception {
        Map<String, Object> data = new HashMap<>();
        data.put("list", List.of(1.0, 2.5, "ü", Map.of("deep", true)));
        data.put("empty", Map.of());
        Map<String, Object> none = Map.of();
        List<Part<?>> sent = List.of(
                new TextPart("Grüße, 世界 🌍", Map.of("lang", "de")),
                new DataPart(data, none),
                new FilePart(new FileWithBytes("text/plain", "four.txt", "Zm91cg=="), none),
                new FilePart(new FileWithUri("text/plain", "a file", "https://example.com/a?b=c&d=%20"), none));
        Task task = talk.send(new Talk.Sending(sent));
        Talk.equal("the state", Talk.state(task), "COMPLETED");
        Talk.equal("the artifact", task.artifacts().get(0).parts(), sent);
        Talk.equal("the message", task.history().get(0).parts(), sent);
    }

    static void cancel(Talk talk) throws Exception {
        for (Task task : List.of(talk.send(Talk.sending("slow 30").atOnce()), talk.send("ask really?"))) {
            Talk.equal("the state", Talk.state(talk.client.cancelTask(new TaskIdParams(task.id(), ""))), "CANCELED");
            Talk.equal("the state later", Talk.state(talk.get(task.id())), "CANCELED");
        }
    }

    static void leave(Talk talk) throws Exception {
        String context = Talk.context();
        Thread waiting = new Thread(() -> {
            try {
                talk.send(Talk.sending("slow 2").context(context));
            } catch (A2AClientException left) {
                // As it should be.
            }
        });
        waiting.start();
        // Its task is listed after a second; then its sender goes away.
        List<Task> found = List.of();
        for (long end = System.nanoTime() + 30_000_000_000L; found.isEmpty() && System.nanoTime() < end;) {
            Thread.sleep(50);
            found = talk.list(ListTasksParams.builder().contextId(context)).tasks();
        }
        waiting.interrupt();
        waiting.join();
        talk.until(found.get(0).id(), "COMPLETED");
    }

    static void tenants(Talk talk) throws Exception {
        String tenant = "tenant-" + Talk.context();
        Task task = talk.send(Talk.sending("hello").tenant(tenant));
        Talk.equal("the task", talk.client.getTask(new TaskQueryParams(task.id(), null, tenant)), task);
        var page = talk.client.listTasks(ListTasksParams.builder().tenant(tenant).build());
        Talk.equal("the total", page.totalSize(), 1);
        fails(TaskNotFoundError.class, () -> talk.get(task.id()));
    }

    static void historyLength(Talk talk) throws Exception {
        String context = Talk.context();
        Task asked = talk.send(Talk.sending("ask which size?").context(context).history(0));
        Talk.equal("the history at 0", asked.history().size(), 0);
        Task done = talk.send(Talk.sending("large").task(asked.id()).history(2));
        Talk.equal("the history at 2", Talk.said(done), "which size?|large");
        Integer[][] rows = {{null, 3}, {0, 0}, {1, 1}, {2, 2}, {50, 3}};
        for (Integer[] row : rows) {
            Task seen = talk.client.getTask(new TaskQueryParams(done.id(), row[0]));
            Talk.equal("the history at " + row[0], seen.history().size(), row[1]);
            var page = talk.list(ListTasksParams.builder().contextId(context).historyLength(row[0]));
            // A listing has none unless it is asked for some.
            int count = row[0] == null ? 0 : row[1];
            Talk.equal("the history in a listing", page.tasks().get(0).history().size(), count);
        }
    }

    static void listFilters(Talk talk) throws Exception {
        String context = Talk.context();
        Task first = talk.send(Talk.sending("one").context(context));
        Task asked = talk.send(Talk.sending("ask two?").context(context));
        Task last = talk.send(Talk.sending("three").context(context));
        Instant time = asked.status().timestamp().toInstant();
        List<Task> late = Stream.of(last, asked, first)
                .filter(task -> !task.status().timestamp().toInstant().isBefore(time)).toList();
        Map<ListTasksParams.Builder, List<Task>> rows = new LinkedHashMap<>();
        rows.put(ListTasksParams.builder(), List.of(last, asked, first));
        rows.put(ListTasksParams.builder().status(TaskState.TASK_STATE_INPUT_REQUIRED), List.of(asked));
        rows.put(ListTasksParams.builder().status(TaskState.TASK_STATE_COMPLETED), List.of(last, first));
        rows.put(ListTasksParams.builder().status(TaskState.TASK_STATE_FAILED), List.of());
        rows.put(ListTasksParams.builder().statusTimestampAfter(time), late);
        rows.put(ListTasksParams.builder().statusTimestampAfter(time)
                .status(TaskState.TASK_STATE_INPUT_REQUIRED), List.of(asked));
        for (var row : rows.entrySet()) {
            var page = talk.list(row.getKey().contextId(context));
            Talk.equal("the tasks", Talk.ids(page.tasks()), Talk.ids(row.getValue()));
            Talk.equal("the total", page.totalSize(), row.getValue().size());
        }
        var completed = ListTasksParams.builder().contextId(context).status(TaskState.TASK_STATE_COMPLETED);
        Task lean = talk.list(completed).tasks().get(0);
        Talk.equal("artifacts and history", lean.artifacts().size() + lean.history().size(), 0);
        Task whole = talk.list(completed.includeArtifacts(true).historyLength(10)).tasks().get(0);
        Talk.equal("the whole task", whole, last);
    }

    static void listWalk(Talk talk) throws Exception {
        String context = Talk.context();
        List<String> wanted = new ArrayList<>();
        for (int n = 0; n < 13; n++) {
            wanted.add(talk.send(Talk.sending("a task").context(context)).id());
        }
        List<String> order = null;
        for (Integer size : new Integer[] {1, 5, 13, 100, null}) {
            List<String> ids = new ArrayList<>();
            String token = "";
            do {
                var filters = ListTasksParams.builder().contextId(context).pageSize(size).pageToken(token);
                var page = talk.list(filters);
                Talk.equal("the total", page.totalSize(), wanted.size());
                Talk.check(!page.tasks().isEmpty(), "a page of a walk is empty");
                page.tasks().forEach(task -> ids.add(task.id()));
                token = page.nextPageToken();
            } while (token != null && !token.isEmpty());
            order = order == null ? ids : order;
            Talk.equal("the order", ids, order);
        }
        if (talk.wire instanceof Wire wire) {
            try {
                wire.translates = false;
                // The SDK wants a page's size to be the number of its tasks, and refuses any other.
                talk.list(ListTasksParams.builder().contextId(context));
                Faults.met("java-jsonrpc-page-size", false);
            } catch (InvalidParamsError refused) {
                Faults.met("java-jsonrpc-page-size", refused.getMessage().contains("pageSize"));
            } finally {
                wire.translates = true;
            }
        }
        Talk.equal("the tasks", order.stream().sorted().toList(), wanted.stream().sorted().toList());
    }

    /** Makes a call, which must fail by {@code kind}. Returns all that is told, of every cause. */
    static String fails(Class<? extends A2AError> kind, Call call) {
        try {
            call.make();
        } catch (Exception error) {
            StringBuilder told = new StringBuilder();
            boolean found = false;
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                told.append(cause.getMessage()).append(' ');
                if (kind.isInstance(cause)) {
                    Talk.check(cause.getMessage() != null, "an error has a text for people");
                    told.append(((A2AError) cause).getData()).append(' ');
                    found = true;
                }
            }
            if (found) {
                return told.toString();
            }
            throw new AssertionError("not a " + kind.getSimpleName(), error);
        }
        throw new AssertionError("no " + kind.getSimpleName());
    }

    static void errorTaskNotFound(Talk talk) {
        fails(TaskNotFoundError.class, () -> talk.get(ABSENT));
        fails(TaskNotFoundError.class, () -> talk.get("made-up"));
        fails(TaskNotFoundError.class, () -> talk.client.cancelTask(new TaskIdParams(ABSENT, "")));
        fails(TaskNotFoundError.class, () -> talk.send(Talk.sending("x").task(ABSENT)));
    }

    /**
     * A stream that fails before its first item. Over JSON-RPC the failure comes as a JSON answer,
     * which the SDK takes for a stream without items.
     */
    private static void failsEarly(Class<? extends A2AError> kind, Talk talk, Talk.Begin begin) throws Exception {
        if (talk.binding.equals("GRPC")) {
            fails(kind, () -> talk.follow(begin));
            return;
        }
        var told = talk.follow(begin);
        boolean empty = told.task() == null && told.messages().isEmpty();
        Faults.met("java-jsonrpc-early-stream-errors", empty);
    }

    static void errorTaskNotFoundStreaming(Talk talk) throws Exception {
        failsEarly(TaskNotFoundError.class, talk, talk.subscription(ABSENT));
        failsEarly(TaskNotFoundError.class, talk, talk.streaming(Talk.sending("x").task(ABSENT)));
    }

    static void errorTaskNotCancelable(Talk talk) throws Exception {
        Task done = talk.send("hello");
        fails(TaskNotCancelableError.class, () -> talk.client.cancelTask(new TaskIdParams(done.id(), "")));
    }

    static void errorUnsupportedOperation(Talk talk) throws Exception {
        Task done = talk.send("hello");
        fails(UnsupportedOperationError.class, () -> talk.send(Talk.sending("more").task(done.id())));
    }

    static void errorUnsupportedOperationStreaming(Talk talk) throws Exception {
        Task done = talk.send("hello");
        failsEarly(UnsupportedOperationError.class, talk, talk.subscription(done.id()));
        failsEarly(UnsupportedOperationError.class, talk, talk.streaming(Talk.sending("more").task(done.id())));
    }

    static void errorInvalidParams(Talk talk) throws Exception {
        Task asked = talk.send("ask what?");
        Map<String, Call> calls = new LinkedHashMap<>();
        calls.put("message.message_id", () -> talk.send(Talk.sending("x").message("x".repeat(300))));
        calls.put("message.context_id",
                () -> talk.send(Talk.sending("x").task(asked.id()).context(Talk.context())));
        calls.put("page_token", () -> talk.list(ListTasksParams.builder().pageToken("made up")));
        for (var row : calls.entrySet()) {
            String told = fails(InvalidParamsError.class, row.getValue());
            Talk.check(told.contains(row.getKey()), told + " does not name " + row.getKey());
        }
    }

    static void errorContentType(Talk talk) {
        List<Part<?>> picture = List.of(new FilePart(new FileWithBytes("image/png", "a.png", "AAEC")));
        fails(ContentTypeNotSupportedError.class, () -> talk.send(new Talk.Sending(picture)));
    }

    static void errorPushNotSupported(Talk talk) {
        var config = PushNotificationConfig.builder().id("one").url("https://example.com/hook").build();
        fails(PushNotificationNotSupportedError.class, () -> talk.client.createTaskPushNotificationConfiguration(
                new TaskPushNotificationConfig(ABSENT, config, "")));
    }

    static void errorExtendedCard(Talk talk) {
        if (talk.binding.equals("GRPC")) {
            fails(UnsupportedOperationError.class, () -> talk.client.getExtendedAgentCard());
            return;
        }
        try {
            talk.client.getExtendedAgentCard();
            throw new AssertionError("there is an extended card");
        } catch (A2AClientException error) {
            // The SDK does not know the answers of this method, errors included.
            boolean unread = error.getCause() instanceof MethodNotFoundJsonMappingException;
            Faults.met("java-jsonrpc-extended-card", unread);
        }
    }

    static void errorVersion(Talk talk) {
        try {
            for (String version : new String[] {null, "0.3", "9.9"}) {
                talk.wire.version = version;
                fails(VersionNotSupportedError.class, () -> talk.send("x"));
                if (version == null) {
                    // Refused for want of one: the SDK itself says no version at all.
                    Faults.met(talk.fault("version"), true);
                }
            }
        } finally {
            talk.wire.version = "1.0";
        }
    }
}
