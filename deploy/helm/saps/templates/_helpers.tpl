{{- define "saps.labels" -}}
{{ include "saps.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "saps.selector" -}}
app.kubernetes.io/name: saps
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Brokers as they reach each other: stable names, whatever addresses their pods get. */ -}}
{{- define "saps.peers" -}}
{{- $hosts := list -}}
{{- range $n := until (int .Values.replicas) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s-brokers.%s.svc" $.Release.Name $n $.Release.Name $.Release.Namespace) -}}
{{- end -}}
{{- join "," $hosts -}}
{{- end }}
