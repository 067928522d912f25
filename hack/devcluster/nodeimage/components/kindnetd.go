package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// How long to wait for further changes after one, and after how long to try again what failed.
const (
	settleTime = 200 * time.Millisecond
	retryTime  = 30 * time.Second
)

// kindnetd stands in for kindest/kindnetd (an image, which cannot be pulled) under kind's own
// manifest: CNI config (ptp + host-local + portmap) for this node's podCIDR and
// a route to every other node's podCIDR. IPv4, no masquerade, no NetworkPolicy.
// It watches the nodes: lists every two seconds were a tenth of the API server's work with 1,000.
func kindnetd() {
	hostIP := os.Getenv("HOST_IP")
	cfg, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(cfg), 0)
	nodes := factory.Core().V1().Nodes()
	changed := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	_ = nodes.Informer().SetTransform(withAddressesOnly)
	_, _ = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		UpdateFunc: func(_, node any) { notify(node) },
	})
	factory.Start(context.Background().Done())
	routes, written := map[string]string{}, ""
	for {
		select {
		case <-changed:
			time.Sleep(settleTime)
		case <-time.After(retryTime):
		}
		known, _ := nodes.Lister().List(labels.Everything())
		for _, node := range known {
			ip := internalIPv4(node)
			_, dst, err := net.ParseCIDR(node.Spec.PodCIDR)
			if err != nil || ip == "" {
				continue
			}
			if ip == hostIP {
				written = writeConfig(node.Spec.PodCIDR, written)
			} else if routes[dst.String()] != ip {
				if err := netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(ip)}); err != nil {
					fmt.Println(node.Name, dst, err)
				} else {
					routes[dst.String()] = ip
				}
			}
		}
	}
}

// withAddressesOnly returns the parts of a node that are needed here, for the cache.
func withAddressesOnly(object any) (any, error) {
	node, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	kept := &corev1.Node{}
	kept.Name, kept.UID, kept.ResourceVersion = node.Name, node.UID, node.ResourceVersion
	kept.Spec.PodCIDR, kept.Status.Addresses = node.Spec.PodCIDR, node.Status.Addresses
	return kept, nil
}

func internalIPv4(node *corev1.Node) string {
	ip := ""
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP && net.ParseIP(address.Address).To4() != nil {
			ip = address.Address
		}
	}
	return ip
}

// writeConfig writes the CNI config unless it is written; it returns the podCIDR of what there is.
func writeConfig(podCIDR, written string) string {
	if podCIDR == written {
		return written
	}
	conf := fmt.Sprintf(`{"cniVersion":"0.3.1","name":"kindnet","plugins":[
{"type":"ptp","ipMasq":false,"mtu":1500,"ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","routes":[{"dst":"0.0.0.0/0"}],"ranges":[[{"subnet":"%s"}]]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}
`, podCIDR)
	temp := "/etc/cni/net.d/10-kindnet.conflist.temp"
	err := os.WriteFile(temp, []byte(conf), 0o644)
	if err == nil {
		err = os.Rename(temp, "/etc/cni/net.d/10-kindnet.conflist")
	}
	fmt.Println("cni config", podCIDR, err)
	if err != nil {
		return written
	}
	return podCIDR
}
