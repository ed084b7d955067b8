import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.protobuf.Any;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.DescriptorValidationException;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.Descriptors.ServiceDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import com.google.rpc.ErrorInfo;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.Marshaller;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.MethodDescriptor.PrototypeMarshaller;
import io.grpc.Status;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/**
 * The same translation over gRPC, where the draft is another service with other field numbers:
 * messages go from one to the other by the names of their fields, which are nearly all the same.
 */
final class GrpcWire extends Translation implements ClientInterceptor {
    private static final String DRAFT = "a2a.v1.A2AService/";
    private static final Metadata.Key<String> VERSION =
            Metadata.Key.of("a2a-version", Metadata.ASCII_STRING_MARSHALLER);
    private static final Metadata.Key<byte[]> DETAILS =
            Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
    /** What the SDK looks for in the text of an error. */
    private static final Map<String, String> NAMES = Map.of(
            "TASK_NOT_FOUND", "TaskNotFoundError",
            "TASK_NOT_CANCELABLE", "TaskNotCancelableError",
            "PUSH_NOTIFICATION_NOT_SUPPORTED", "PushNotificationNotSupportedError",
            "UNSUPPORTED_OPERATION", "UnsupportedOperationError",
            "CONTENT_TYPE_NOT_SUPPORTED", "ContentTypeNotSupportedError",
            "VERSION_NOT_SUPPORTED", "VersionNotSupportedError",
            "INVALID_PARAMS", "InvalidParamsError");

    private final ServiceDescriptor service;

    /** Reads the contract, as {@code a2ad descriptor} prints it. */
    GrpcWire(Path descriptors) throws IOException, DescriptorValidationException {
        Map<String, FileDescriptorProto> known = new HashMap<>();
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(Files.readAllBytes(descriptors)).getFileList()) {
            known.put(file.getName(), file);
        }
        service = built("lf/a2a/v1/a2a.proto", known, new HashMap<>()).findServiceByName("A2AService");
    }

    private static FileDescriptor built(
            String name, Map<String, FileDescriptorProto> known, Map<String, FileDescriptor> built)
            throws DescriptorValidationException {
        if (!built.containsKey(name)) {
            FileDescriptorProto file = known.get(name);
            FileDescriptor[] uses = new FileDescriptor[file.getDependencyCount()];
            for (int n = 0; n < uses.length; n++) {
                uses[n] = built(file.getDependency(n), known, built);
            }
            built.put(name, FileDescriptor.buildFrom(file, uses));
        }
        return built.get(name);
    }

    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
        String name = method.getFullMethodName();
        Faults.met("java-grpc-service", name.startsWith(DRAFT));
        name = name.substring(DRAFT.length());
        if (name.equals("ListTaskPushNotificationConfig")) {
            name += "s";
        }
        var real = service.findMethodByName(name);
        Marshaller<Q> question = question(real.getInputType());
        Marshaller<A> answer = answer(real.getOutputType(), method.getResponseMarshaller());
        MethodDescriptor<Q, A> translated = method.toBuilder(question, answer)
                .setFullMethodName(service.getFullName() + "/" + name).build();
        Runnable end = ended;
        return new SimpleForwardingClientCall<>(next.newCall(translated, options)) {
            @Override
            public void start(Listener<A> listener, Metadata headers) {
                if (version != null) {
                    headers.discardAll(VERSION);
                    headers.put(VERSION, version);
                }
                super.start(new SimpleForwardingClientCallListener<>(listener) {
                    @Override
                    public void onClose(Status status, Metadata trailers) {
                        saidSo = false;
                        super.onClose(named(status, trailers), trailers);
                        if (status.isOk() && method.getType() == MethodType.SERVER_STREAMING) {
                            Faults.met("java-grpc-stream-end", !saidSo);
                            end.run();
                        }
                    }
                }, headers);
            }
        };
    }

    /** An error whose text says its name, which is all that the SDK looks at. */
    private static Status named(Status status, Metadata trailers) {
        byte[] details = trailers == null ? null : trailers.get(DETAILS);
        if (status.isOk() || details == null) {
            return status;
        }
        try {
            for (Any detail : com.google.rpc.Status.parseFrom(details).getDetailsList()) {
                if (detail.is(ErrorInfo.class)) {
                    String name = NAMES.get(detail.unpack(ErrorInfo.class).getReason());
                    String text = status.getDescription();
                    Faults.met("java-grpc-error-names", name == null || !text.contains(name));
                    return name == null ? status : status.withDescription(name + ": " + text);
                }
            }
            return status;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private <Q> Marshaller<Q> question(Descriptor type) {
        return new Marshaller<>() {
            @Override
            public InputStream stream(Q draft) {
                try {
                    JsonObject json = json((Message) draft);
                    if (json.has("configuration")) {
                        JsonObject configuration = json.getAsJsonObject("configuration");
                        Faults.met("java-grpc-return-immediately", !configuration.has("returnImmediately"));
                        JsonElement waits = configuration.remove("blocking");
                        configuration.addProperty("returnImmediately", waits == null || !waits.getAsBoolean());
                    }
                    DynamicMessage.Builder real = DynamicMessage.newBuilder(type);
                    JsonFormat.parser().ignoringUnknownFields().merge(json.toString(), real);
                    return new ByteArrayInputStream(real.build().toByteArray());
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }

            @Override
            public Q parse(InputStream bytes) {
                throw new UnsupportedOperationException("a client reads no requests");
            }
        };
    }

    private <A> Marshaller<A> answer(Descriptor type, Marshaller<A> draft) {
        return new Marshaller<>() {
            @Override
            public InputStream stream(A answer) {
                throw new UnsupportedOperationException("a client sends no answers");
            }

            @Override
            @SuppressWarnings("unchecked")
            public A parse(InputStream bytes) {
                try {
                    JsonObject json = json(DynamicMessage.parseFrom(type, bytes));
                    var prototype = (Message) ((PrototypeMarshaller<A>) draft).getMessagePrototype();
                    Message.Builder answer = prototype.newBuilderForType();
                    JsonFormat.parser().ignoringUnknownFields().merge(json.toString(), answer);
                    return (A) answer.build();
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        };
    }

    private static JsonObject json(Message message) throws IOException {
        return JsonParser.parseString(JsonFormat.printer().print(message)).getAsJsonObject();
    }
}
