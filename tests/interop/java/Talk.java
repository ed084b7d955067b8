import io.a2a.A2A;
import io.a2a.client.Client;
import io.a2a.client.ClientEvent;
import io.a2a.client.MessageEvent;
import io.a2a.client.TaskEvent;
import io.a2a.client.TaskUpdateEvent;
import io.a2a.client.config.ClientConfig;
import io.a2a.client.transport.grpc.GrpcTransport;
import io.a2a.client.transport.grpc.GrpcTransportConfigBuilder;
import io.a2a.client.transport.jsonrpc.JSONRPCTransport;
import io.a2a.client.transport.jsonrpc.JSONRPCTransportConfigBuilder;
import io.a2a.jsonrpc.common.wrappers.ListTasksResult;
import io.a2a.spec.A2AClientException;
import io.a2a.spec.AgentCard;
import io.a2a.spec.AgentInterface;
import io.a2a.spec.ListTasksParams;
import io.a2a.spec.Message;
import io.a2a.spec.MessageSendConfiguration;
import io.a2a.spec.MessageSendParams;
import io.a2a.spec.Part;
import io.a2a.spec.Task;
import io.a2a.spec.TaskIdParams;
import io.a2a.spec.TaskQueryParams;
import io.a2a.spec.TextPart;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** A client on one binding, and what the scenarios ask of its answers. */
final class Talk implements AutoCloseable {
    final String binding;
    final AgentCard card;
    final Translation wire;
    final Client client;
    final Client streaming;
    private final List<ManagedChannel> channels = new ArrayList<>();

    Talk(String baseUrl, String binding) throws Exception {
        this.binding = binding;
        this.card = A2A.getAgentCard(baseUrl);
        String endpoint = faces().get(0).url();
        this.wire = binding.equals("GRPC")
                ? new GrpcWire(Path.of(System.getenv("A2A_DESCRIPTORS"))) : new Wire(endpoint);
        this.client = client(false);
        this.streaming = client(true);
    }

    /** Where the card says that the binding is. */
    List<AgentInterface> faces() {
        return card.supportedInterfaces().stream()
                .filter(face -> face.protocolBinding().equals(binding)).toList();
    }

    /** The name of a fault that the SDK has on this binding. */
    String fault(String name) {
        return "java-" + binding.toLowerCase() + "-" + name;
    }

    /** A client that knows one binding alone. */
    private Client client(boolean streaming) throws A2AClientException {
        AgentCard only = AgentCard.builder(card).supportedInterfaces(faces()).build();
        var client = Client.builder(only)
                .clientConfig(new ClientConfig.Builder().setStreaming(streaming).build());
        if (wire instanceof GrpcWire grpc) {
            client.withTransport(GrpcTransport.class, new GrpcTransportConfigBuilder().channelFactory(
                    url -> ClientInterceptors.intercept(channel(url), grpc)));
        } else {
            check(binding.equals("JSONRPC"), "this SDK speaks A2A 1.0 over gRPC and JSON-RPC alone");
            client.withTransport(JSONRPCTransport.class, new JSONRPCTransportConfigBuilder().httpClient((Wire) wire));
        }
        return client.build();
    }

    private Channel channel(String target) {
        var channel = NettyChannelBuilder.forTarget(target).usePlaintext().build();
        channels.add(channel);
        return channel;
    }

    /** A message as the user, and how it is sent. */
    static final class Sending {
        private final Message.Builder message = Message.builder()
                .role(Message.Role.ROLE_USER).messageId(UUID.randomUUID().toString());
        private String tenant = "";
        private boolean waits = true;
        private Integer history;

        Sending(String text) {
            this(List.of(new TextPart(text)));
        }

        Sending(List<Part<?>> parts) {
            message.parts(parts);
        }

        Sending message(String id) {
            message.messageId(id);
            return this;
        }

        Sending task(String id) {
            message.taskId(id);
            return this;
        }

        Sending context(String id) {
            message.contextId(id);
            return this;
        }

        Sending tenant(String name) {
            tenant = name;
            return this;
        }

        Sending atOnce() {
            waits = false;
            return this;
        }

        Sending history(int length) {
            history = length;
            return this;
        }

        MessageSendParams params() {
            var configuration = MessageSendConfiguration.builder().blocking(waits).historyLength(history);
            return MessageSendParams.builder().message(message.build())
                    .configuration(configuration.build()).tenant(tenant).build();
        }
    }

    static Sending sending(String text) {
        return new Sending(text);
    }

    /** The one answer to a send. */
    ClientEvent answer(Sending sending) throws A2AClientException {
        List<ClientEvent> answers = new ArrayList<>();
        client.sendMessage(sending.params(), List.of((event, card) -> answers.add(event)), null, null);
        equal("the number of answers", answers.size(), 1);
        return answers.get(0);
    }

    /** A send that makes a task. */
    Task send(Sending sending) throws A2AClientException {
        ClientEvent answer = answer(sending);
        check(answer instanceof TaskEvent, "the answer is " + answer);
        return ((TaskEvent) answer).getTask();
    }

    Task send(String text) throws A2AClientException {
        return send(sending(text));
    }

    Task get(String id) throws A2AClientException {
        return client.getTask(new TaskQueryParams(id));
    }

    ListTasksResult list(ListTasksParams.Builder filters) throws A2AClientException {
        return client.listTasks(filters.tenant("").build());
    }

    /** Reads the task until it is in a state. */
    Task until(String id, String wanted) throws Exception {
        for (long end = System.nanoTime() + 30_000_000_000L; System.nanoTime() < end; Thread.sleep(50)) {
            Task task = get(id);
            if (state(task).equals(wanted)) {
                return task;
            }
        }
        throw new AssertionError(id + " did not become " + wanted);
    }

    /** What a stream told: each state that the task had, and the task as the SDK put it together. */
    record Told(Task task, List<String> states, List<Message> messages) {}

    /** Begins a stream with what it calls for an event and for its end. */
    interface Begin {
        void with(Consumer<ClientEvent> event, Consumer<Throwable> end) throws A2AClientException;
    }

    Begin streaming(Sending sending) {
        return (event, end) -> streaming.sendMessage(
                sending.params(), List.of((item, card) -> event.accept(item)), end, null);
    }

    Begin subscription(String id) {
        return (event, end) -> streaming.subscribeToTask(
                new TaskIdParams(id, ""), List.of((item, card) -> event.accept(item)), end);
    }

    /** Reads a stream to its end, or until it told enough. */
    Told follow(Begin begin, Predicate<Told> enough) throws Exception {
        BlockingQueue<Object> items = new LinkedBlockingQueue<>();
        Object end = new Object();
        wire.ended = () -> items.add(end);
        begin.with(items::add, error -> {
            wire.saidSo |= error == null;
            items.add(error == null ? end : error);
        });
        Told told = new Told(null, new ArrayList<>(), new ArrayList<>());
        while (true) {
            Object item = items.poll(30, TimeUnit.SECONDS);
            check(item != null, "a stream is silent for 30 seconds after " + told);
            if (item == end) {
                return told;
            }
            if (item instanceof Exception error) {
                throw error;
            }
            if (item instanceof MessageEvent message) {
                told.messages().add(message.getMessage());
            } else {
                boolean update = item instanceof TaskUpdateEvent;
                check(update == (told.task() != null), "a stream begins with its task: " + item);
                Task task = update ? ((TaskUpdateEvent) item).getTask() : ((TaskEvent) item).getTask();
                told = new Told(task, told.states(), told.messages());
                if (told.states().isEmpty() || !state(task).equals(told.states().get(told.states().size() - 1))) {
                    told.states().add(state(task));
                }
            }
            if (enough.test(told)) {
                return told;
            }
        }
    }

    Told follow(Begin begin) throws Exception {
        return follow(begin, told -> false);
    }

    static String context() {
        return "context-" + UUID.randomUUID();
    }

    static String state(Task task) {
        return task.status().state().name().replace("TASK_STATE_", "");
    }

    static String texts(List<Part<?>> parts) {
        return parts.stream().map(part -> ((TextPart) part).text()).collect(Collectors.joining("|"));
    }

    static String artifact(Task task) {
        equal("the number of artifacts", task.artifacts().size(), 1);
        return texts(task.artifacts().get(0).parts());
    }

    static String said(Task task) {
        return task.history().stream().map(message -> texts(message.parts())).collect(Collectors.joining("|"));
    }

    static String ids(List<Task> tasks) {
        return tasks.stream().map(Task::id).collect(Collectors.joining(" "));
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(String what, Object got, Object wanted) {
        check(Objects.equals(got, wanted), what + " is " + got + ", not " + wanted);
    }

    @Override
    public void close() {
        client.close();
        streaming.close();
        channels.forEach(ManagedChannel::shutdownNow);
    }
}
