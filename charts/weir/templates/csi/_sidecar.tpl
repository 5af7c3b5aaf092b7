{{/* weir.sidecar: a container of the kubernetes-csi project beside the controller. Argument: list
     of the root context, its key in .Values.csi, its name, the port of its probe, and its flags.
     */}}
{{- define "weir.sidecar" -}}
{{- $root := index . 0 }}{{ $name := index . 2 }}{{ $port := index . 3 }}{{ $flags := index . 4 }}
{{- $s := index $root.Values.csi (index . 1) -}}
- name: {{ $name }}
  image: {{ include "weir.imageName" (list $root $s.image $root.Values.csi.sidecarRegistry) }}
  imagePullPolicy: {{ $root.Values.imagePullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --leader-election
    - --http-endpoint=:{{ $port }}
    {{- if ne $name "health-monitor" }}
    # The API server shares itself out; five requests a second, the default, make a hundred pods wait.
    - --kube-api-qps=100
    - --kube-api-burst=200
    {{- end }}
    {{- range concat $flags $s.extraArgs }}
    - {{ . }}
    {{- end }}
  env:
    # Where the lease is.
    - name: POD_NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    {{- if has "--enable-capacity" $flags }}
    # Where the CSIStorageCapacity objects are, and whose they are: the Deployment above this pod.
    - name: NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    {{- end }}
  ports:
    - {name: {{ $name }}, containerPort: {{ $port }}}
  livenessProbe:
    httpGet: {path: /healthz/leader-election, port: {{ $name }}}
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 3
  resources: {{- toYaml $root.Values.csi.sidecarResources | nindent 4 }}
  {{- include "weir.containerSecurity" $root | nindent 2 }}
  volumeMounts:
    - {name: socket, mountPath: /csi}
{{- end }}
