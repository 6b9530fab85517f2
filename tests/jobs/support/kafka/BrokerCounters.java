import com.sun.tools.attach.VirtualMachine;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints Kafka's BrokerTopicMetrics of JVMs on this machine, at each line of standard input; an empty line ends them. */
public class BrokerCounters {
    public static void main(String[] processIds) throws Exception {
        Map<String, MBeanServerConnection> brokers = new LinkedHashMap<>();
        for (String processId : processIds) {
            VirtualMachine machine = VirtualMachine.attach(processId);
            String address = machine.startLocalManagementAgent();
            machine.detach();
            brokers.put(processId, JMXConnectorFactory.connect(new JMXServiceURL(address)).getMBeanServerConnection());
        }
        ObjectName pattern = new ObjectName("kafka.server:type=BrokerTopicMetrics,*");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        while (requests.readLine() != null) {
            for (Map.Entry<String, MBeanServerConnection> broker : brokers.entrySet()) {
                for (ObjectName name : broker.getValue().queryNames(pattern, null)) {
                    String topic = name.getKeyProperty("topic");
                    Object count = broker.getValue().getAttribute(name, "Count");
                    System.out.println(String.join("\t", broker.getKey(), name.getKeyProperty("name"),
                            topic == null ? "" : topic, count.toString()));
                }
            }
            System.out.println();
            System.out.flush();
        }
    }
}
